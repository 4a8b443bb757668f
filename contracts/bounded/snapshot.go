package bounded

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Replica is a copy of the model: the ranks that hold its slices, and, where
// data-parallel ranks share the state out, their shares.
type Replica struct {
	Held map[string][]evidence.Holding // by parameter

	ranks []int
}

// Replicas lists a run's copies of the model: one where state is sharded.
func Replicas(r *evidence.Run) []Replica {
	out := make([]Replica, r.Config.Plan.DP)
	if r.Config.Plan.Zero > 0 {
		out = out[:1]
	}
	for i := range out {
		out[i].Held = map[string][]evidence.Holding{}
	}
	for rank := range r.Header.World {
		i := min(r.At(rank).DP, len(out)-1)
		out[i].ranks = append(out[i].ranks, rank)
	}
	held := r.Held()
	for _, t := range r.Params {
		for _, h := range held[t.Name] {
			i := min(h.At.DP, len(out)-1)
			out[i].Held[t.Name] = append(out[i].Held[t.Name], h)
		}
	}
	return out
}

// holder is the first rank that holds an element of a parameter.
func (m *Replica) holder(tensor string, index int64) int {
	for _, h := range m.Held[tensor] {
		if h.Has(index) {
			return h.Rank
		}
	}
	return m.ranks[0]
}

// Snapshot is what the ranks of a replica captured of one step: weights and
// moments before and after it, and the reduced gradient.
type Snapshot struct {
	Replica
	Before, After contract.State
	Grad          map[string][]float32
}

// Captured collects the elements of a step; ok is false where some are missing.
func Captured(r *evidence.Run, m Replica, step int) (s Snapshot, ok bool) {
	s = Snapshot{Replica: m, Before: contract.State{}, After: contract.State{}}
	for _, what := range r.State() {
		if s.Before[what], ok = m.elements(r, step-1, what); !ok {
			return s, false
		}
		if s.After[what], ok = m.elements(r, step, what); !ok {
			return s, false
		}
	}
	s.Grad, ok = m.elements(r, step, trace.Grad)
	return s, ok
}

func (m *Replica) elements(r *evidence.Run, step int, what string) (map[string][]float32, bool) {
	out := map[string][]float32{}
	for _, t := range r.Params {
		x, ok := r.Elements(m.Held[t.Name], step, what)
		if !ok {
			return nil, false
		}
		out[t.Name] = x
	}
	return out, true
}

// Update recomputes the optimizer's step from the replica's own state and
// gradient.
func (s *Snapshot) Update(p *contract.Pass, r *evidence.Run, step int) (contract.State, error) {
	if p.Oracle == nil {
		return nil, fmt.Errorf("no oracle to recompute the update with")
	}
	taken := r.Taken
	if step > r.First {
		e, ok := r.Scalar(s.ranks[0], step-1, trace.Counter)
		if !ok {
			return nil, fmt.Errorf("rank %d did not record its number of optimizer steps before step %d", s.ranks[0], step)
		}
		taken = int(e.Value)
	}
	return p.Oracle.Update(r.Config, taken, s.Before, s.Grad)
}
