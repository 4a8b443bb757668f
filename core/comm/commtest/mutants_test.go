package commtest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
)

// reports collects what a check finds.
type reports struct {
	mu    sync.Mutex
	lines []string
}

func (r *reports) Helper() {}

func (r *reports) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// suite opens worlds of the algorithm with a defect on every rank, which wait
// for each other until the deadline.
func suite(algo names.Algorithm, deadline time.Duration, f func(m *mutant) overrides) commtest.Suite {
	return commtest.Suite{
		Canonical: true,
		Backend:   host,
		Patience:  4 * deadline,
		Open: func(size int) ([]comm.Communicator, error) {
			comms, err := comm.NewLocal(size, host, comm.Options{Algorithm: algo, Deadline: deadline})
			for i, c := range comms {
				if f != nil {
					comms[i] = &mutant{Communicator: c, f: f}
				}
			}
			return comms, err
		},
	}
}

func find(t *testing.T, name string) commtest.Check {
	t.Helper()
	for _, c := range commtest.Checks() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q", name)
	return commtest.Check{}
}

func TestDefectsAreCaught(t *testing.T) {
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, check := range d.checks {
				var r reports
				find(t, check).Run(&r, suite(names.Tree, 400*time.Millisecond, d.f))
				if len(r.lines) == 0 {
					t.Errorf("check %q does not see it", check)
				}
			}
		})
	}
}

func TestLeftFoldIsNotCanonical(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Star, names.Ring} {
		var r reports
		find(t, "results").Run(&r, suite(algo, 10*time.Second, nil))
		if !strings.Contains(strings.Join(r.lines, "\n"), string("order inputs")) {
			t.Errorf("%s passes for the canonical tree: %q", algo, r.lines)
		}
	}
}

// Every check catches at least one defect, so that none is idle.
func TestEveryCheckCanFail(t *testing.T) {
	sees := map[string]bool{}
	for _, d := range defects() {
		for _, c := range d.checks {
			sees[c] = true
		}
	}
	for _, d := range recordDefects() {
		for _, c := range d.checks {
			sees[c] = true
		}
	}
	for _, c := range commtest.Checks() {
		if !sees[c.Name] {
			t.Errorf("no defect for check %q", c.Name)
		}
	}
}

func TestSuiteAcceptsTheTree(t *testing.T) {
	for _, c := range commtest.Checks() {
		var r reports
		c.Run(&r, suite(names.Tree, 10*time.Second, func(*mutant) overrides { return overrides{} }))
		if len(r.lines) > 0 {
			t.Errorf("%s: %q", c.Name, r.lines)
		}
	}
}
