package data

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// endless never ends, and counts what was asked of it.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return len(b), nil
}

func TestStreamsAreBounded(t *testing.T) {
	const limit = 5 << 19 // two blocks and a half
	var r endless
	if _, err := read("s", &r, limit); err == nil || r.read != limit+1 || err.Error() != `text "s": has no end within 2621440 bytes: must have at most that many` {
		t.Errorf("%d bytes were read: %v", r.read, err)
	}
	for _, n := range []int{1, blockBytes - 1, blockBytes, blockBytes + 1, 2 * blockBytes, limit} {
		whole := strings.Repeat("abcdefg", limit/7+1)[:n]
		for _, r := range []io.Reader{strings.NewReader(whole), iotest.DataErrReader(strings.NewReader(whole)), iotest.HalfReader(strings.NewReader(whole))} {
			if text, err := read("s", r, limit); err != nil || string(text.Bytes) != whole || text.Name != "s" {
				t.Errorf("of %d bytes there are %d: %v", n, len(text.Bytes), err)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := read("s", iotest.ErrReader(broken), limit); !errors.Is(err, broken) {
		t.Errorf("a stream that breaks: %v", err)
	}
}
