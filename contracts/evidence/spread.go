package evidence

import (
	"cmp"
	"slices"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Holding is a parameter, or the slice of it, that the plan gives to one rank.
type Holding struct {
	Rank  int
	At    names.Coord
	Param model.Param
	Unit  string
}

// Held lists by parameter name who holds what of it, ranks ascending. The
// gradient source of a tied head is listed under its own name. Empty slices are
// left out. It is nobody's to change.
func (r *Run) Held() map[string][]Holding { return r.held() }

func (r *Run) holdings() map[string][]Holding {
	out := map[string][]Holding{}
	for rank := range r.Header.World {
		for _, l := range r.Layouts(rank) {
			for _, p := range l.Params {
				if p.Len() > 0 {
					out[p.Name] = append(out[p.Name], Holding{rank, r.At(rank), p, l.Units[p.Unit].Name})
				}
			}
		}
	}
	return out
}

// At is a rank's place on the axes of the plan.
func (r *Run) At(rank int) names.Coord { return r.Config.Plan.Dims().Coord(rank) }

// Copy is what ranks recorded of one slice of a tensor: one rank's copy, or,
// where data-parallel ranks share it out, their shares together.
type Copy struct {
	Holding // of the lowest rank that has a share
	Event   trace.Event
}

// Complete reports whether the copy covers the slice that the plan gives to the
// rank.
func (c Copy) Complete() bool { return c.Event.Count == int64(c.Param.Len()) }

// Copies collects what the holders of one tensor recorded of it: What, step and
// worker as in Digest.
func (r *Run) Copies(held []Holding, step int, what string, worker int) []Copy {
	if len(held) == 0 || !r.somehow[about{-1, step, what, held[0].Param.Name, worker}] {
		return nil // most of what a header claims beyond what is recorded
	}
	var out []Copy
	shares := map[names.Coord]int{} // place in out, by coordinates without DP
	for _, h := range held {
		e, ok := r.Digest(h.Rank, step, what, h.Param.Name, worker)
		if !ok {
			continue
		}
		at := h.At
		at.DP = 0
		i, shared := shares[at]
		switch {
		case e.Count == int64(h.Param.Len()):
			out = append(out, Copy{h, e})
		case shared:
			out[i].Event = Add(out[i].Event, e)
		default:
			shares[at] = len(out)
			out = append(out, Copy{h, e})
		}
	}
	return out
}

// Records is the number of copies of a tensor, held as given, that Copies finds
// in a whole history: one per model-parallel place, times the data-parallel
// ranks where they hold replicas.
func (r *Run) Records(held []Holding, what string) int {
	if what == trace.WorkerGrad || r.Shared(what) {
		return len(held) / r.Config.Plan.DP
	}
	return len(held)
}

// Shared reports whether data-parallel ranks share a kind of state out, so that
// each records a part of its slice.
func (r *Run) Shared(what string) bool {
	zero := r.Config.Plan.Zero
	return zero > 0 && what != trace.WorkerGrad && (what != trace.Weight || zero == 3)
}

// BySlice groups copies of one tensor by the slice that they cover, in the order
// of the slices.
func BySlice(copies []Copy) [][]Copy {
	return Grouped(copies, func(a, b Copy) int {
		x, y := a.Param, b.Param
		return cmp.Or(cmp.Compare(x.R.Lo, y.R.Lo), cmp.Compare(x.C.Lo, y.C.Lo), cmp.Compare(x.R.Hi, y.R.Hi), cmp.Compare(x.C.Hi, y.C.Hi))
	})
}

// Grouped sorts and groups what an order holds for equal; within a group all
// stay in their order.
func Grouped[T any](all []T, order func(a, b T) int) [][]T {
	var out [][]T
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, order)
	for i, x := range sorted {
		if i == 0 || order(sorted[i-1], x) != 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], x)
	}
	return out
}

// Whole adds up one copy of each slice, as BySlice groups them. It is complete
// if its Count is that of the logical tensor.
func Whole(groups [][]Copy) trace.Event {
	var sum trace.Event
	for _, g := range groups {
		sum = Add(sum, g[0].Event)
	}
	return sum
}

// SliceOf is the digest of the elements of a whole tensor that a holding covers;
// ok is false unless whole has the elements themselves.
func SliceOf(h Holding, whole trace.Event) (e trace.Event, ok bool) {
	p := h.Param
	if len(whole.Data) != p.Rows*p.Cols {
		return trace.Event{}, false
	}
	var d kernels.Digest
	data := make(trace.Floats, 0, p.Len())
	for _, index := range h.positions(shard.Range{Hi: p.Len()}) {
		x := whole.Data[index]
		data = append(data, x)
		a, b := kernels.Mix(p.ID, uint64(index), uint64(kernels.Bits(x)))
		one := kernels.Digest{A: a, B: b}
		if x-x != 0 {
			one.NonFinite = 1
		}
		d.Add(one)
	}
	return trace.Event{Digest: &d, Count: int64(p.Len()), Data: data}, true
}
