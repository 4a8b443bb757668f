package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// MaxNote bounds a note between processes of a run.
const MaxNote = 16 << 20

// Channel is a connection that carries notes, each a length and JSON, and what notes
// announce. Several goroutines may send, one receives.
type Channel struct {
	Conn net.Conn
	// Sending is held while something is sent.
	Sending sync.Mutex
}

// Send writes a note, and behind it what it announces, within a while.
func (c *Channel) Send(note any, patience time.Duration, behind ...[]byte) error {
	body, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if len(body) > MaxNote {
		return fmt.Errorf("a note of %d bytes, at most %d are sent", len(body), MaxNote)
	}
	all := net.Buffers{binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body}
	c.Sending.Lock()
	defer c.Sending.Unlock()
	if err := c.Conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	all = append(all, behind...)
	_, err = all.WriteTo(c.Conn)
	return err
}

// Receive reads the next note, which has at most limit bytes and comes within a while.
func (c *Channel) Receive(limit int, patience time.Duration, note any) error {
	if err := c.Conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > uint32(limit) {
		return fmt.Errorf("a note of %d bytes, at most %d are taken", size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.Conn, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, note); err != nil {
		return fmt.Errorf("a note that is none: %w", err)
	}
	return nil
}

// Behind reads the n bytes that a note announced, in parts each of which comes within
// a while.
func (c *Channel) Behind(n int64, patience time.Duration) io.Reader {
	return io.LimitReader(&patient{c.Conn, patience}, n)
}

// patient is a connection that waits a while for each part.
type patient struct {
	conn     net.Conn
	patience time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(p.patience)); err != nil {
		return 0, err
	}
	return p.conn.Read(b)
}
