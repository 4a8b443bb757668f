package suite

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Progress names the run that has gone on longest, not the one that began last.
func TestProgressNamesTheSlowestRun(t *testing.T) {
	slow, quick := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var told []Progress
	e := &Engine{Width: 2, Progress: func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, p)
	}}
	first := make(chan struct{})
	plan := func(name string, do func()) *Trial {
		return e.Plan("C-A-001", Case{Name: name, Runs: map[contract.Role]Run{contract.Test: {Do: func(context.Context, Env) (*trace.History, error) {
			do()
			return nil, nil
		}}}})
	}
	trials := []*Trial{
		plan("slow", func() { close(first); <-slow }),
		plan("quick", func() { <-first; close(quick) }),
		plan("last", func() { <-quick; close(slow); time.Sleep(time.Millisecond) }),
	}
	if err := e.Run(t.Context(), trials...); err != nil {
		t.Fatal(err)
	}
	last := slices.IndexFunc(told, func(p Progress) bool { return p.Ended == 1 && p.More == 1 })
	if last < 0 || told[last].Slowest != "C-A-001, slow, test run" {
		t.Fatalf("told %+v", told)
	}
	end := told[len(told)-1]
	if end.Ended != 3 || end.Of != 3 || end.Slowest != "" {
		t.Errorf("at the end %+v", end)
	}
	if got := told[last].Line(told[last].Since.Add(75 * time.Second)); got != "1 of 3 runs; C-A-001, slow, test run for 1m15s, 1 more" {
		t.Errorf("in words: %q", got)
	}
	if got := end.Line(time.Now()); got != "3 of 3 runs" {
		t.Errorf("in words: %q", got)
	}
	var c Clock
	if sum := c.Took(trials...); sum < time.Millisecond {
		t.Errorf("the runs took %s", sum)
	}
	if again := c.Took(trials...); again != 0 {
		t.Errorf("counted twice: %s", again)
	}
}
