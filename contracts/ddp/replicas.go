package ddp

import (
	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// initial is clause 1: replicas start bit-equal.
func initial(p *contract.Pass, r *evidence.Run) {
	equalReplicas(p, r, r.First-1, r.Held())
}

// updated is clause 2: after every step replicas are bit-equal, and no two
// buffers of different ranks overlap.
func updated(p *contract.Pass, r *evidence.Run) {
	r.Apart(p)
	held := r.Held()
	for step := r.First; step < r.Steps; step++ {
		equalReplicas(p, r, step, held)
		counters(p, r, step)
	}
}

// equalReplicas compares what data-parallel ranks hold replicas of after a step:
// weights and moments; under ZeRO the weights; in stage 3, where nothing rests
// replicated, the weights that each rank gathers to compute the next step with.
func equalReplicas(p *contract.Pass, r *evidence.Run, step int, held map[string][]evidence.Holding) {
	replicated := r.State()
	switch {
	case r.Config.Plan.Zero == 3:
		if step+1 < r.Steps {
			gathered(p, r, step)
		}
		return
	case r.Config.Plan.Zero > 0:
		replicated = []string{trace.Weight}
	}
	for _, what := range replicated {
		for _, t := range tensors(r, what) {
			replicas(p, r, step, what, held[t])
		}
	}
}

// tensors names what has weights or moments. A tied head has weights of its own
// on a stage without the embedding.
func tensors(r *evidence.Run, what string) []string {
	var out []string
	for _, t := range r.Params {
		out = append(out, t.Name)
	}
	if what == trace.Weight && r.Config.Model.Tied && r.Config.Plan.Dims().PP > 1 {
		out = append(out, model.HeadName)
	}
	return out
}

// replicas compares the copies of one tensor within each data-parallel group.
func replicas(p *contract.Pass, r *evidence.Run, step int, what string, held []evidence.Holding) {
	for _, group := range r.Groups() {
		copies, place := map[int]trace.Event{}, r.At(group[0])
		for _, h := range held {
			if h.At.PP != place.PP || h.At.TP != place.TP {
				continue
			}
			if e, ok := r.Digest(h.Rank, step, what, h.Param.Name, 0); p.Found(ok) {
				copies[h.Rank] = e
			}
		}
		bounded.Dissent(p, r, step, what, copies)
	}
}

// gathered compares the units that each rank first used in the step after the
// given one.
func gathered(p *contract.Pass, r *evidence.Run, step int) {
	first := map[string]map[int]trace.Event{} // by unit and rank
	for rank := range r.Header.World {
		for e := range r.In(step+1, rank, trace.KindGather) {
			if first[e.Unit] == nil {
				first[e.Unit] = map[int]trace.Event{}
			}
			if _, again := first[e.Unit][rank]; !again && e.What == names.Use && e.Digest != nil {
				first[e.Unit][rank] = e
			}
		}
	}
	for _, group := range r.Groups() {
		for _, l := range r.Layouts(group[0]) {
			for _, u := range l.Units {
				if u.Hi > l.Weights {
					continue // reads the embedding's
				}
				copies := map[int]trace.Event{}
				for _, rank := range group {
					if e, ok := first[u.Name][rank]; ok {
						copies[rank] = e
					}
				}
				p.Count(len(group), len(copies))
				bounded.Dissent(p, r, step, "gathered "+u.Name, copies)
			}
		}
	}
}

// counters compares the number of optimizer steps that ranks have taken.
func counters(p *contract.Pass, r *evidence.Run, step int) {
	var first *trace.Event
	for rank := range r.Header.World {
		e, ok := r.Scalar(rank, step, trace.Counter)
		if ok && first == nil {
			first = &e
		}
		if p.Found(ok) && e.Value != first.Value {
			p.At(rank, step).Report(e.Value, first.Value, "rank %d has taken %v optimizer steps, rank %d %v", rank, e.Value, first.Rank, first.Value)
		}
	}
}
