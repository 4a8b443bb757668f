package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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

// Send writes a note, and behind it what it announces, in parts each of which goes
// within a while. Where one does not, the connection is closed: after a part of a note
// nothing can follow. Where the other end is gone, what it has sent can still be read.
func (c *Channel) Send(note any, patience time.Duration, behind ...[]byte) error {
	body, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if len(body) > MaxNote {
		return fmt.Errorf("a note of %d bytes, at most %d are sent", len(body), MaxNote)
	}
	head := append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
	c.Sending.Lock()
	defer c.Sending.Unlock()
	to := &patient{c.Conn, patience}
	for _, b := range append([][]byte{head}, behind...) {
		if _, err := to.Write(b); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				_ = c.Conn.Close()
			}
			return err
		}
	}
	return nil
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
		return &tooLong{size, limit}
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

// tooLong is a note that is longer than it may be.
type tooLong struct {
	size  uint32
	limit int
}

// Error says both.
func (t *tooLong) Error() string {
	return fmt.Sprintf("a note of %d bytes, at most %d are taken", t.size, t.limit)
}

// Behind reads the n bytes that a note announced, in parts each of which comes within
// a while.
func (c *Channel) Behind(n int64, patience time.Duration) *Behind {
	return &Behind{from: patient{c.Conn, patience}, left: n}
}

// Behind is what a note announced.
type Behind struct {
	from patient
	left int64
	// Err is why it ended before all of it had come: whoever reads it may see only that
	// something is missing.
	Err error
}

// Read implements io.Reader.
func (b *Behind) Read(p []byte) (n int, err error) {
	if b.left <= 0 {
		return 0, io.EOF
	}
	n, err = b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if errors.Is(err, io.EOF) && b.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if b.left > 0 {
		b.Err = err
	}
	return n, err
}

// patient is a connection that takes a while for each part, and not more.
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

// part is how much is written within a while.
const part = 1 << 16

func (p *patient) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		if err = p.conn.SetWriteDeadline(time.Now().Add(p.patience)); err != nil {
			break
		}
		var k int
		k, err = p.conn.Write(b[n:min(len(b), n+part)])
		n += k
	}
	return n, err
}
