package evidence

import (
	"slices"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Changes collects which elements of a tensor, held as given, a step changed: a
// Digest over those elements of a slice, and Count how many. A slice of which
// some data-parallel rank did not record its share is left out.
func (r *Run) Changes(held []Holding, step int) []Copy {
	if r.Config.Plan.Zero == 0 {
		return r.changes(held, trace.KindChanged, step)
	}
	return r.shared(held, trace.KindChanged, step, r.Moments()[0])
}

// Unmoved collects which elements of a tensor, held as given, still have their
// initial bits after the last step: Ranges of the slice's elements.
func (r *Run) Unmoved(held []Holding) []Copy {
	if r.Config.Plan.Zero < 3 {
		return r.changes(held, trace.KindUnmoved, r.Config.Steps-1)
	}
	return r.shared(held, trace.KindUnmoved, r.Config.Steps-1, trace.Weight)
}

// changes are the holders' events of a kind.
func (r *Run) changes(held []Holding, kind trace.Kind, step int) []Copy {
	var out []Copy
	for _, h := range held {
		if e, ok := r.changed[about{h.Rank, step, string(kind), h.Param.Name, 0}]; ok {
			out = append(out, Copy{h, e})
		}
	}
	return out
}

// shared joins the events of data-parallel ranks that share a slice out: the
// digest of state, shared out likewise, tells how much of the slice those ranks
// have that recorded one.
func (r *Run) shared(held []Holding, kind trace.Kind, step int, state string) []Copy {
	joined, elements := map[names.Coord]*Copy{}, map[names.Coord]int64{}
	var order []names.Coord
	for _, c := range r.changes(held, kind, step) {
		at := c.At
		at.DP = 0
		own, _ := r.Digest(c.Rank, step, state, c.Param.Name, 0)
		elements[at] += own.Count
		if joined[at] == nil {
			joined[at], order = &c, append(order, at)
		} else {
			joined[at].Event = join(joined[at].Event, c.Event)
		}
	}
	var out []Copy
	for _, at := range order {
		if c := joined[at]; elements[at] == int64(c.Param.Len()) {
			out = append(out, *c)
		}
	}
	return out
}

// join adds up what two ranks say of their shares.
func join(a, b trace.Event) trace.Event {
	if a.Digest != nil && b.Digest != nil {
		d := *a.Digest
		d.Add(*b.Digest)
		a.Digest = &d
	}
	a.Count += b.Count
	a.Ranges = Union(slices.Concat(a.Ranges, b.Ranges))
	return a
}
