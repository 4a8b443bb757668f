package ddp

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// replica is a copy of the model: the ranks that hold its slices, and, where
// data-parallel ranks share the state out, their shares.
type replica struct {
	ranks []int
	held  map[string][]evidence.Holding // by parameter
}

// modelReplicas lists a run's copies of the model: one where state is sharded.
func modelReplicas(r *evidence.Run) []replica {
	out := make([]replica, r.Config.Plan.DP)
	if r.Config.Plan.Zero > 0 {
		out = out[:1]
	}
	for i := range out {
		out[i].held = map[string][]evidence.Holding{}
	}
	for rank := range r.Header.World {
		i := min(r.At(rank).DP, len(out)-1)
		out[i].ranks = append(out[i].ranks, rank)
	}
	held := r.Held()
	for _, t := range r.Params {
		for _, h := range held[t.Name] {
			i := min(h.At.DP, len(out)-1)
			out[i].held[t.Name] = append(out[i].held[t.Name], h)
		}
	}
	return out
}

// holder is the first rank that holds an element of a parameter.
func (m *replica) holder(tensor string, index int64) int {
	for _, h := range m.held[tensor] {
		if h.Has(index) {
			return h.Rank
		}
	}
	return m.ranks[0]
}

// snapshot is what the ranks of a replica captured of one step.
type snapshot struct {
	replica
	before, after contract.State
	grad          map[string][]float32
}

// captured collects the elements of a step; a missing one is missing evidence.
func captured(r *evidence.Run, m replica, step int) (s snapshot, ok bool) {
	s = snapshot{replica: m, before: contract.State{}, after: contract.State{}}
	for _, what := range r.State() {
		if s.before[what], ok = m.elements(r, step-1, what); !ok {
			return s, false
		}
		if s.after[what], ok = m.elements(r, step, what); !ok {
			return s, false
		}
	}
	s.grad, ok = m.elements(r, step, trace.Grad)
	return s, ok
}

func (m *replica) elements(r *evidence.Run, step int, what string) (map[string][]float32, bool) {
	out := map[string][]float32{}
	for _, t := range r.Params {
		x, ok := r.Elements(m.held[t.Name], step, what)
		if !ok {
			return nil, false
		}
		out[t.Name] = x
	}
	return out, true
}

// update recomputes the optimizer's step.
func (s *snapshot) update(p *contract.Pass, r *evidence.Run, step int) (contract.State, error) {
	if p.Oracle == nil {
		return nil, fmt.Errorf("no oracle to recompute the update with")
	}
	taken := step
	if step > 0 {
		e, ok := r.Scalar(s.ranks[0], step-1, trace.Counter)
		if !ok {
			return nil, fmt.Errorf("rank %d did not record its number of optimizer steps before step %d", s.ranks[0], step)
		}
		taken = int(e.Value)
	}
	return p.Oracle.Update(r.Header.Spec, taken, s.before, s.grad)
}
