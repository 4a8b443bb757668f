//go:build unix

package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// addingLibrary is a Library of ranks that are goroutines: it adds from the last rank to the first.
type addingLibrary struct {
	mu     sync.Mutex
	size   int
	taken  int
	free   []int
	given  map[int][][]float32 // by number, of the ranks that have begun
	deaf   bool                // nothing is ever over
	refuse bool
}

func (s *addingLibrary) Take() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse {
		return 0, errors.New("all are taken")
	}
	s.taken++
	return 100 + s.taken, nil
}

func (s *addingLibrary) Reducer(number int, links []Link, rank int) (Reducer, error) {
	if len(links) != s.size || links[rank] != nil || number <= 100 {
		return nil, errors.New("is no group of all ranks")
	}
	return &adder{s: s, number: number, rank: rank}, nil
}

type adder struct {
	s            *addingLibrary
	number, rank int
	into         []float32
	round        int
}

func (a *adder) AllReduce(x []float32, op kernels.Op) error {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	key := a.number<<16 + a.round
	a.round++
	if a.s.given[key] == nil {
		a.s.given[key] = make([][]float32, a.s.size)
	}
	a.s.given[key][a.rank], a.into = slices.Clone(x), x
	return nil
}

func (a *adder) Over() (bool, error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	all := a.s.given[a.number<<16+a.round-1]
	if a.s.deaf || slices.ContainsFunc(all, func(x []float32) bool { return x == nil }) {
		return false, nil
	}
	for i := range a.into {
		a.into[i] = 0
		for _, x := range slices.Backward(all) {
			a.into[i] += x[i]
		}
	}
	return true, nil
}

func (a *adder) Close(well bool) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if a.rank == 0 && well {
		a.s.free = append(a.s.free, a.number)
	}
}

// withSums is a world whose all-reduces are a library's.
func withSums(t *testing.T, s *addingLibrary) []comm.Communicator {
	t.Helper()
	s.given = map[int][][]float32{}
	ends, err := Local(t.Context(), s.size, func(int) kernels.Backend { return commtest.Memory{} },
		comm.Options{Algorithm: names.MPI, Deadline: 500 * time.Millisecond}, func() (Way, error) {
			w, err := sockets("127.0.0.1:0")
			w.Library = s
			return w, err
		})
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

// every runs f on all ranks.
func every(ends []comm.Communicator, f func(c comm.Communicator) error) []error {
	errs := make([]error, len(ends))
	var all sync.WaitGroup
	for i, c := range ends {
		all.Go(func() { errs[i] = f(c) })
	}
	all.Wait()
	return errs
}

// tensor holds numbers.
func tensor(x ...float32) kernels.Tensor {
	b, err := commtest.Memory{}.Alloc(len(x))
	if err != nil {
		panic(err)
	}
	t := kernels.Flat(b)
	commtest.Memory{}.Write(t, x)
	return t
}

// All-reduces of the world, and of groups of all of its ranks, are the library's, each
// group with a reducer of its own; what they move is not counted. All else is the tree's.
func TestLibrarySums(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int{2, 3, 5} {
		s := &addingLibrary{size: size}
		ends := withSums(t, s)
		for _, err := range every(ends, func(c comm.Communicator) error {
			other, err := c.Split(ctx, 0, -c.Rank())
			if err != nil {
				return err
			}
			alone, err := c.Split(ctx, c.Rank(), 0)
			if err != nil {
				return err
			}
			for round, g := range []comm.Communicator{c, other, c, other, alone} {
				for _, n := range []int{0, 1, 7} {
					x := tensor(slices.Repeat([]float32{float32(1 + g.Rank() + round)}, n)...)
					if err := g.AllReduce(ctx, x, kernels.Sum); err != nil {
						return err
					}
					want, got := float32(0), make([]float32, n)
					for r := range g.Size() {
						want += float32(1 + r + round)
					}
					if err := (commtest.Memory{}).Read(got, x); err != nil || slices.ContainsFunc(got, func(v float32) bool { return v != want }) {
						t.Errorf("%d ranks, round %d: %v, want %v", size, round, got, want)
					}
					if moved := g.(comm.Mover).Moved(); g.Size() > 1 && moved != names.NotCounted {
						t.Errorf("%d bytes are counted", moved)
					}
				}
			}
			if err := c.AllGather(ctx, tensor(make([]float32, size)...), tensor(1), nil); err != nil {
				return err
			}
			if moved := c.(comm.Mover).Moved(); moved != int64(4*(size-1)) {
				t.Errorf("%d ranks: an all-gather moves %d bytes", size, moved)
			}
			return c.Close()
		}) {
			if err != nil {
				t.Errorf("%d ranks: %v", size, err)
			}
		}
		if s.taken != 2 || len(s.free) != 2 {
			t.Errorf("%d ranks: %d reducers were taken, %v are free", size, s.taken, s.free)
		}
	}
}

// Ranks that do not call the same fail before the library is given anything; a group of
// some ranks has no reducer; a reduction that does not end has a deadline; one that
// cannot be had is rank 0's fault; and no number is free after a failure.
func TestLibraryFails(t *testing.T) {
	ctx := context.Background()
	for _, x := range []struct {
		name  string
		sums  *addingLibrary
		f     func(c comm.Communicator) error
		cause error
		says  string
	}{
		{"mismatch", &addingLibrary{}, func(c comm.Communicator) error {
			if err := c.Barrier(ctx); err != nil { // with which the world gets its reducer
				return err
			}
			return c.AllReduce(ctx, tensor(make([]float32, 1+c.Rank()/2)...), kernels.Sum)
		}, comm.ErrMismatch, ""},
		{"group", &addingLibrary{}, func(c comm.Communicator) error {
			g, err := c.Split(ctx, c.Rank()/2, 0)
			if err != nil {
				return err
			}
			if g.Size() == 1 {
				return c.Barrier(ctx)
			}
			return g.AllReduce(ctx, tensor(1), kernels.Sum)
		}, nil, "reduces over all of the world's 3 ranks, and this group has 2 of them"},
		{"deadline", &addingLibrary{deaf: true}, func(c comm.Communicator) error { return c.AllReduce(ctx, tensor(1), kernels.Sum) }, comm.ErrDeadline, ""},
		{"none", &addingLibrary{refuse: true}, func(c comm.Communicator) error { return c.Barrier(ctx) }, nil, "all are taken"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := x.sums
			s.size = 3
			ends := withSums(t, s)
			for i, err := range every(ends, x.f) {
				if err == nil || x.cause != nil && !errors.Is(err, x.cause) || !strings.Contains(err.Error(), x.says) {
					t.Errorf("rank %d: %v", i, err)
				}
			}
			for _, c := range ends {
				c.Close()
			}
			if len(s.given) > 0 && !s.deaf {
				t.Errorf("the library was given %v", s.given)
			}
			if len(s.free) > 0 {
				t.Errorf("after a failure reducers %v are free", s.free)
			}
		})
	}
}

// An algorithm of a library needs one.
func TestLibraryIsNeeded(t *testing.T) {
	_, err := Local(t.Context(), 2, func(int) kernels.Backend { return commtest.Memory{} }, comm.Options{Algorithm: names.MPI}, func() (Way, error) { return sockets("127.0.0.1:0") })
	if err == nil || !strings.Contains(err.Error(), "algorithm mpi: ranks reach each other by sockets, which sums nothing") {
		t.Error(err)
	}
}
