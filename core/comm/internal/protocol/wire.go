package protocol

import (
	"context"
	"errors"
	"hash/fnv"
	"io"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Said is a call as another process reads it: Call with its broken rule in words.
type Said struct {
	Op        string     `json:"op"`
	Count     int64      `json:"count"`
	Bounds    []int      `json:"bounds,omitempty"`
	Reduction kernels.Op `json:"reduction"`
	Peer      int        `json:"peer"`
	Seq       uint64     `json:"seq"`
}

// Say is the call for other processes.
func (h *Call) Say() *Said {
	return &Said{Op: h.Op, Count: h.Count, Bounds: h.Bounds, Reduction: h.Reduction, Peer: h.Peer, Seq: h.Seq}
}

// Call is what was said.
func (s *Said) Call() *Call {
	return &Call{Op: s.Op, Count: s.Count, Bounds: s.Bounds, Reduction: s.Reduction, Peer: s.Peer, Seq: s.Seq}
}

// Digest is the same for calls that fit, and tells others apart but by chance: FNV-1a
// of what Fits compares. Where a length may differ it is left out.
func (h *Call) Digest() uint64 {
	d := fnv.New64a()
	_, _ = io.WriteString(d, h.Op) // a hash takes all
	var b [8]byte
	word := func(x uint64) {
		for i := range b {
			b[i] = byte(x >> (8 * i))
		}
		_, _ = d.Write(b[:])
	}
	if !h.free() {
		word(uint64(h.Count))
		word(uint64(h.Reduction))
		word(uint64(h.Peer))
		for _, x := range h.Bounds {
			word(uint64(x))
		}
	}
	return d.Sum64()
}

// Told is a failure as another process reads it.
type Told struct {
	Peer  int    `json:"peer"`
	Cause string `json:"cause,omitempty"` // one of causes, or ""
	Text  string `json:"text"`
}

// causes are the errors that errors.Is finds in another process too, by name.
var causes = []struct {
	name string
	err  error
}{
	{"mismatch", ErrMismatch}, {"left", ErrLeft}, {"deadline", ErrDeadline}, {"deadlock", ErrDeadlock}, {"argument", ErrArgument}, {"panic", ErrPanicked},
	{"lost", ErrLost}, {"corrupt", ErrCorrupt}, {"canceled", context.Canceled}, {"context deadline", context.DeadlineExceeded},
}

// Tell is the failure for other processes.
func (f Failure) Tell() Told {
	t := Told{Peer: f.Peer, Text: f.Err.Error()}
	for _, c := range causes {
		if errors.Is(f.Err, c.err) {
			t.Cause = c.name
			break
		}
	}
	return t
}

// Failure is what was told.
func (t Told) Failure() Failure {
	e := &told{text: t.Text}
	for _, c := range causes {
		if t.Cause == c.name {
			e.cause = c.err
		}
	}
	return Failure{t.Peer, e}
}

// told is an error of another process.
type told struct {
	text  string
	cause error
}

func (e *told) Error() string { return e.text }
func (e *told) Unwrap() error { return e.cause }
