//go:build mpi

package mpi

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/kernels"
)

// reducers is how many groups may use MPI's reductions at a time. Their communicators are
// there from the beginning: processes make them together, in one order, and groups that
// come about beside each other have none.
const reducers = 64

// Take implements engine.Library. What MPI has begun on a communicator it ends there:
// when this process has the result of a group's last reduction, all others have begun
// it, so whoever takes the number next cannot be before them.
func (p *Process) Take() (number int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return 0, fmt.Errorf("mpi: all of %d reducers are taken, or were when a run failed", reducers)
	}
	number, p.free = p.free[0], p.free[1:]
	return number, nil
}

// Reducer implements engine.Library.
func (p *Process) Reducer(number int, links []engine.Link, rank int) (engine.Reducer, error) {
	if number < 0 || number >= reducers {
		return nil, engine.Corrupt("reducer %d: there are %d", number, reducers)
	}
	processes := make([]int, len(links))
	for i, l := range links {
		processes[i] = p.process
		if i != rank {
			processes[i] = l.(*link).to.process
		}
		if j := slices.Index(processes[:i], processes[i]); j >= 0 {
			return nil, fmt.Errorf("mpi: ranks %d and %d are in one process, and MPI reduces over processes: start as many agents as there are ranks", j, i)
		}
	}
	if len(processes) != p.size {
		return nil, fmt.Errorf("mpi: %d ranks, and MPI reduces over %d processes: start as many agents as there are ranks", len(processes), p.size)
	}
	r, err := p.newReduction(p.comms[number])
	if err != nil {
		return nil, err
	}
	return &sums{reduction: r, number: number, first: rank == 0}, nil
}

// sums is an engine.Reducer. It reduces in memory of its own, as links send from theirs.
type sums struct {
	*reduction
	number int
	first  bool      // of rank 0
	into   []float32 // of what is being reduced; nil where nothing is
}

// AllReduce implements engine.Reducer.
func (s *sums) AllReduce(x []float32, op kernels.Op) error {
	if len(x) > math.MaxInt32 {
		return fmt.Errorf("mpi: a reduction of %d elements, at most %d are possible", len(x), math.MaxInt32)
	}
	if err := s.room(len(x)); err != nil {
		return err
	}
	copy(s.data, x)
	s.into = x
	return s.begin(op == kernels.Max)
}

// Over implements engine.Reducer.
func (s *sums) Over() (bool, error) {
	over, err := s.test()
	if over && err == nil {
		copy(s.into, s.data)
		s.into = nil
	}
	return over, err
}

// Close implements engine.Reducer. What is left after a failure MPI may use yet, and so
// is kept, and its number taken.
func (s *sums) Close(well bool) {
	if s.into != nil {
		return
	}
	s.free()
	if s.first && well {
		s.p.mu.Lock()
		defer s.p.mu.Unlock()
		s.p.free = append(s.p.free, s.number)
	}
}
