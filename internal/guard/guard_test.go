package guard_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/internal/guard"
)

type node struct{ next *node }

func dereference(n *node) *node { return n.next.next }

func index(s []int, i int) int { return s[i] }

func explicit() { panic("kernels: shapes\ndo not fit") }

func TestPanicsSayWhereTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		f    func()
		says string
	}{
		"nil":      {func() { dereference(&node{}) }, "invalid memory address or nil pointer dereference, in guard_test.dereference (guard_test.go:15) < guard_test.TestPanicsSayWhereTheyWere"},
		"index":    {func() { index(nil, 3) }, "index out of range [3] with length 0, in guard_test.index (guard_test.go:17) < "},
		"explicit": {explicit, "panic: kernels: shapes do not fit, in guard_test.explicit (guard_test.go:19) < "},
		"again": {func() {
			defer func() { panic(recover()) }()
			explicit()
		}, "panic: kernels: shapes do not fit, in guard_test."},
	} {
		err := guard.Do(func() error { c.f(); return nil })
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant %s", name, err, c.says)
		}
	}
	err := guard.Do(func() error { panic(io.ErrUnexpectedEOF) })
	var p *guard.Panic
	if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &p) {
		t.Errorf("an error as the value is lost: %v", err)
	}
	var bounds runtime.Error
	if err := guard.Do(func() error { index(nil, 1); return nil }); !errors.As(err, &bounds) {
		t.Errorf("not the runtime's error: %v", err)
	}
	if err := guard.Do(func() error { return io.EOF }); err != io.EOF {
		t.Errorf("got %v", err)
	}
}

// A panic of a goroutine reaches whoever waits for it, with its own frames.
func TestGroupPassesAPanicOn(t *testing.T) {
	err := guard.Do(func() error {
		var g guard.Group
		g.Go(func() {})
		g.Go(func() { index(nil, 7) })
		g.Wait()
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "index out of range [7] with length 0, in guard_test.index") {
		t.Errorf("got %v", err)
	}
}
