//go:build unix

package tcp

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
)

// note is a message of the control connection, or of a handshake: a length and JSON.
type note struct {
	Kind string `json:"kind"`
	Rank int    `json:"rank"`

	Hello *hello   `json:"hello,omitempty"`
	Addrs []string `json:"addrs,omitempty"` // of a table: where each rank listens
	Text  string   `json:"text,omitempty"`  // of a refusal
	Nonce []byte   `json:"nonce,omitempty"`
	MAC   []byte   `json:"mac,omitempty"`

	Failure *protocol.Told `json:"failure,omitempty"` // of noteFail and noteAbort

	Group uint64         `json:"group,omitempty"`
	Ranks []int          `json:"ranks,omitempty"` // of the group, in the world
	Call  *protocol.Said `json:"call,omitempty"`
	Left  *departure     `json:"left,omitempty"`
	Stand *stand         `json:"stand,omitempty"`
	Check uint64         `json:"check,omitempty"` // of noteAsk
}

// Kinds of notes.
const (
	noteChallenge = "challenge" // acceptor: prove yourself
	noteHello     = "hello"     // dialer: who I am
	noteWelcome   = "welcome"   // acceptor
	noteRefused   = "refused"   // acceptor, with a text

	noteTable = "table" // rank 0: all have come, and listen there
	noteBeat  = "beat"  // I live
	noteFail  = "fail"  // to rank 0: the world has failed
	noteAbort = "abort" // from rank 0: the world's first failure
	noteOdd   = "odd"   // to rank 0: a peer called something else than I
	noteQuery = "query" // from rank 0: what do you call in this group?
	noteSaid  = "said"  // to rank 0: this
	noteLeft  = "left"  // a rank closed a group
	noteStand = "stand" // to rank 0: what I do in all groups
	noteAsk   = "ask"   // from rank 0: tell me that
	noteBye   = "bye"   // to rank 0: I have left the world
)

// departure says what a rank had done in a group when it closed it: what its peers
// still get of it, and what they will not.
type departure struct {
	Collectives uint64         `json:"collectives"`
	Sent        map[int]uint64 `json:"sent,omitempty"` // messages, by the receiver's rank in the world
	Received    map[int]uint64 `json:"received,omitempty"`
}

// Bounds of a note: of strangers, and of ranks of the world.
const (
	maxHello = 4 << 10
	maxNote  = 16 << 20
)

// channel is a connection that carries notes. Several goroutines may send.
type channel struct {
	conn net.Conn
	mu   sync.Mutex
}

// send writes a note within a while.
func (c *channel) send(n note, patience time.Duration) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if len(body) > maxNote {
		return fmt.Errorf("a note of %d bytes, at most %d are sent", len(body), maxNote)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err = c.conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// receive reads the next note, which has at most limit bytes and comes within a while.
func (c *channel) receive(limit int, patience time.Duration) (n note, err error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return n, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return n, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > uint32(limit) {
		return n, fmt.Errorf("a note of %d bytes, at most %d are taken", size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return n, err
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, fmt.Errorf("a note that is none: %w", err)
	}
	return n, nil
}
