//go:build unix

package engine

import (
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// note is a message of the control connection.
type note struct {
	Kind string `json:"kind"`
	Rank int    `json:"rank"`

	Addrs []map[string]string `json:"addrs,omitempty"` // of a table: where each rank listens, by way

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

// channel carries notes.
type channel struct{ *wire.Channel }

// send writes a note within a while.
func (c *channel) send(n note, patience time.Duration) error { return c.Send(n, patience) }

// receive reads the next note, which comes within a while.
func (c *channel) receive(patience time.Duration) (n note, err error) {
	err = c.Receive(wire.MaxNote, patience, &n)
	return n, err
}
