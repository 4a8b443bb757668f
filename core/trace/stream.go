package trace

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
)

// maxUnwritten is how many bytes of lines a stream holds at most, but for one line:
// a step that records elements has many.
const maxUnwritten = 1 << 18

// stream writes a history while it grows. Its file always ends with a whole line:
// whatever ends the run, what is there can be read.
type stream struct {
	f     *os.File
	lines bytes.Buffer // that are not yet in the file
	enc   encoder
	step  int   // of the latest event
	size  int64 // of the file
	err   error // the first; nothing is written after it
	// failed, where not nil, is told of it at once.
	failed func(error)
}

// Stream has the log write every event that it is given, whatever Keep says, to
// <dir>/<rank>.ndjson, which must not exist: the same bytes as Save. What a step
// recorded is there when the next one begins. failed is called at most once, with
// the first error of writing, from within Record. Close completes the file.
func (l *Log) Stream(dir string, failed func(error)) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path(dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	s := &stream{f: f, failed: failed, step: -1}
	s.enc = newEncoder(&s.lines)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream = s
	s.end(s.enc.Encode(l.Header))
	s.flush()
	return s.err
}

// Close completes the file of Stream, where there is one, and gives the first error
// of writing it.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stream
	if s == nil {
		return nil
	}
	l.stream = nil
	s.flush()
	if s.err == nil {
		s.end(s.f.Sync())
	}
	s.end(s.f.Close())
	return s.err
}

// add takes an event.
func (s *stream) add(e Event) {
	if e.Step != s.step || s.lines.Len() > maxUnwritten {
		s.flush()
		s.step = e.Step
	}
	if s.err == nil {
		s.end(s.enc.event(e))
	}
}

// flush writes the lines that are held.
func (s *stream) flush() {
	if s.err != nil {
		return
	}
	n, err := s.f.Write(s.lines.Bytes())
	s.lines.Reset()
	if err != nil {
		_ = s.f.Truncate(s.size) // half a line says nothing; the error of writing is the one that counts
	} else {
		s.size += int64(n)
	}
	s.end(err)
}

// end keeps the first error.
func (s *stream) end(err error) {
	if err == nil || s.err != nil {
		return
	}
	s.err = err
	if s.failed != nil {
		s.failed(err)
	}
}

// encoder writes the lines of a history.
type encoder struct{ *json.Encoder }

func newEncoder(w io.Writer) encoder { return encoder{json.NewEncoder(w)} }

// event writes one.
func (enc encoder) event(e Event) error {
	if e.Kind == KindScalar {
		return enc.Encode(scalar{e, e.Value})
	}
	return enc.Encode(e)
}

// scalar is an event whose value is written where it is 0, too.
type scalar struct {
	Event
	Value Float `json:"value"`
}
