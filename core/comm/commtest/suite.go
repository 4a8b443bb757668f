// Package commtest is the conformance suite of communicators: what Communicator
// promises, checked on worlds of one to eight ranks in this process. Results are
// judged by package drill; the other checks look at order, groups, what happens
// when ranks disagree, leave or are stopped, and the records of all that.
//
// Checks report through Reporter, so that a suite can be tested: a communicator
// with a defect must make it report.
package commtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Reporter takes what a check finds; *testing.T is one.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// Suite is a communicator under test.
type Suite struct {
	// Open makes a world and returns the ends of all its ranks, by rank. Every
	// check opens its own worlds; it does not close those that have failed.
	Open func(size int) ([]comm.Communicator, error)
	// Backend gives the memory that rank's tensors live in.
	Backend func(rank int) kernels.Backend
	// Canonical demands the bits of the tree. Without it, sums whose bits depend
	// on order need only be equal on all ranks.
	Canonical bool
	// Patience is how long one world may take for a check; 0 is 30 s.
	Patience time.Duration
	// Level of the drill; 0 is quick.
	Level int
	// Record is how operations are recorded; nil is comm.Recorded.
	Record func(c comm.Communicator, observe func(comm.Record)) comm.Communicator

	judged *atomic.Int64 // operations of drills; nil where nobody counts
}

// Check is one promise of Communicator.
type Check struct {
	Name string
	Run  func(Reporter, Suite)
}

// Checks lists the suite.
func Checks() []Check {
	return []Check{
		{"results", checkResults},
		{"stream", checkStream},
		{"sources", checkSources},
		{"barrier", checkBarrier},
		{"nested splits", checkNestedSplits},
		{"duplicates overlap", checkDuplicates},
		{"arguments", checkArguments},
		{"mismatch", checkMismatch},
		{"misfits", checkMisfits},
		{"closed peer", checkClosedPeer},
		{"cancelled peer", checkCancelledPeer},
		{"failure spreads", checkFailureSpreads},
		{"quiet close", checkQuietClose},
		{"records", checkRecords},
		{"records of failures", checkRecordsOfFailures},
	}
}

// Run runs the suite as subtests. open returns the ends of all ranks of a new
// world, be the backend of a rank's tensors. The log says how much was checked.
func Run(t *testing.T, open func(t testing.TB, size int) []comm.Communicator, be func(rank int) kernels.Backend, canonical bool) {
	t.Helper()
	ran, worlds, judged := 0, map[int]int{}, &atomic.Int64{}
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, Suite{
				Open: func(size int) ([]comm.Communicator, error) {
					worlds[size]++
					return open(t, size), nil
				},
				Backend:   be,
				Canonical: canonical,
				judged:    judged,
			})
			ran++
		})
	}
	t.Logf("%d of %d checks ran, on %s; %d operations of drills were judged", ran, len(Checks()), listWorlds(worlds), judged.Load())
}

// listWorlds says how many worlds there were, and of which sizes.
func listWorlds(bySize map[int]int) string {
	n, sizes := 0, ""
	for _, size := range slices.Sorted(maps.Keys(bySize)) {
		n += bySize[size]
		sizes += fmt.Sprintf(", %d of %d", bySize[size], size)
	}
	return fmt.Sprintf("%d worlds (%s ranks)", n, strings.TrimPrefix(sizes, ", "))
}

// sizes are the worlds of most checks.
func sizes() []int { return []int{1, 2, 3, 4, 5, 6, 7, 8} }

// rank is one rank of a world under check.
type rank struct {
	comm.Communicator
	be kernels.Backend
}

// vector allocates a tensor with the given elements.
func (r rank) vector(x ...float32) kernels.Tensor {
	b, err := r.be.Alloc(len(x))
	if err != nil {
		panic("commtest: " + err.Error()) // a few elements: the host is out of memory
	}
	t := kernels.Flat(b)
	r.be.Write(t, x)
	return t
}

// read gives the elements of a tensor.
func (r rank) read(t kernels.Tensor) ([]float32, error) {
	x := make([]float32, t.Len())
	return x, r.be.Read(x, t)
}

// expect compares the elements of a tensor bit for bit.
func (r rank) expect(t kernels.Tensor, want ...float32) error {
	got, err := r.read(t)
	if err != nil {
		return err
	}
	for i := range want {
		if kernels.Bits(got[i]) != kernels.Bits(want[i]) {
			return fmt.Errorf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
	return nil
}

// errSilent is the result of a rank that did not return in time.
var errSilent = errors.New("rank did not return")

// world opens a world and runs f on every rank at once. It returns what f
// returned, by rank; the context ends when the suite's patience does.
func (s Suite) world(r Reporter, size int, f func(context.Context, rank) error) []error {
	r.Helper()
	comms, err := s.Open(size)
	if err != nil {
		r.Errorf("open a world of %d: %v", size, err)
		return nil
	}
	return s.each(comms, f)
}

// each runs f on the given ends at once.
func (s Suite) each(comms []comm.Communicator, f func(context.Context, rank) error) []error {
	patience := s.Patience
	if patience == 0 {
		patience = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var mu sync.Mutex
	errs := make([]error, len(comms))
	var all sync.WaitGroup
	for i, c := range comms {
		errs[i] = errSilent
		all.Go(func() {
			err := f(ctx, rank{c, s.Backend(i)})
			if err != nil {
				c.Close() // its peers need not wait for it
			}
			mu.Lock()
			defer mu.Unlock()
			errs[i] = err
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience + patience/4):
	}
	mu.Lock()
	defer mu.Unlock()
	return append([]error(nil), errs...)
}

// mustHold runs f on every rank and reports each that returns an error.
func (s Suite) mustHold(r Reporter, size int, f func(context.Context, rank) error) {
	r.Helper()
	for i, err := range s.world(r, size, f) {
		if err != nil {
			r.Errorf("world of %d, rank %d: %v", size, i, err)
		}
	}
}
