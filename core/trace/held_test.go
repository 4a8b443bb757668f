package trace

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
)

// TestHold: events that are held keep their place, complete, in the log, in its file and for
// Keep; what comes while they are released comes after them.
func TestHold(t *testing.T) {
	dir := t.TempDir()
	l := &Log{Header: Header{Schema: Schema, Rank: 1, World: 2}}
	var seen []int
	l.Keep = func(e Event) bool {
		seen = append(seen, e.Step)
		return e.Step != 3
	}
	if err := l.Stream(dir, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	l.Record(Event{Kind: KindPhase, Step: 0})
	d := new(kernels.Digest)
	l.Hold(Event{Kind: KindDigest, Step: 1, Digest: d}, func(e *Event) {
		e.Count = 7
		l.Record(Event{Kind: KindPhase, Step: 4}) // while it is released
	})
	l.Record(Event{Kind: KindPhase, Step: 2})
	l.Hold(Event{Kind: KindDigest, Step: 3}, func(e *Event) { e.Count = 8 })
	if n := len(l.Events()); n != 1 || len(seen) != 1 {
		t.Errorf("%d events are there before the first that is held was released, Keep has seen %d", n, len(seen))
	}
	d.A = 5
	l.Release()
	l.Record(Event{Kind: KindPhase, Step: 5})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(seen, want) {
		t.Errorf("Keep has seen steps %d, want %d", seen, want)
	}
	var steps []int
	for _, e := range l.Events() {
		steps = append(steps, e.Step)
		if e.Step == 1 && (e.Count != 7 || e.Digest.A != 5) || e.Rank != 1 {
			t.Errorf("event %+v", e)
		}
	}
	if want := []int{0, 1, 2, 4, 5}; !slices.Equal(steps, want) {
		t.Errorf("steps %d are recorded, want %d", steps, want)
	}
	b, err := os.ReadFile(l.path(dir))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")[1:]
	for i, line := range lines {
		if !strings.Contains(line, fmt.Sprintf(`"step":%d,`, i)) && !strings.Contains(line, fmt.Sprintf(`"step":%d}`, i)) {
			t.Errorf("event %d of the file is %s", i, line)
		}
	}
	if len(lines) != 6 || !strings.Contains(lines[3], `"count":8`) {
		t.Errorf("%d events in the file, want 6, the fourth complete: %s", len(lines), lines)
	}
}

// TestHoldTogether: several goroutines record while events are held and released; each one's
// stay in order, and none is lost.
func TestHoldTogether(t *testing.T) {
	l := &Log{Header: Header{Schema: Schema, World: 1}}
	const n = 2000
	var all sync.WaitGroup
	for g := range 3 {
		all.Go(func() {
			for i := range n {
				e := Event{Kind: KindPhase, Unit: fmt.Sprint(g), Step: i}
				if g == 0 && i%3 == 0 {
					l.Hold(e, func(e *Event) { e.Count = 1 })
				} else {
					l.Record(e)
				}
				if g == 0 && i%50 == 49 {
					l.Release()
				}
			}
		})
	}
	all.Wait()
	l.Release()
	next := map[string]int{}
	for _, e := range l.Events() {
		if e.Step != next[e.Unit] {
			t.Fatalf("goroutine %s: event %d, want %d", e.Unit, e.Step, next[e.Unit])
		}
		next[e.Unit]++
	}
	for g := range 3 {
		if got := next[fmt.Sprint(g)]; got != n {
			t.Errorf("goroutine %d: %d events, want %d", g, got, n)
		}
	}
}
