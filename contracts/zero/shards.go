package zero

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// sharded is clause 1: shards are contiguous, disjoint, cover their unit, and
// have the sizes of the shard rule.
func sharded(p *contract.Pass, r *evidence.Run) {
	held := holdingsOf(r)
	for _, x := range firsts(r) {
		for step := r.First - 1; step < r.Steps; step++ {
			for _, what := range shardedState(r, step) {
				for _, c := range x.cuts {
					checkCut(p, r, held, x, c, step, what)
				}
			}
		}
	}
}

// shardedState names what is sharded at the end of a step.
func shardedState(r *evidence.Run, step int) []string {
	out := r.Moments()
	if step >= r.First {
		out = append(out, trace.Grad)
	}
	if r.Config.Plan.Zero == 3 {
		out = append(out, trace.Weight)
	}
	return out
}

// holding is what a rank holds of a parameter.
type holding struct {
	rank, step   int
	what, tensor string
}

// holdings are the ranges of the flat layout that each rank's digests cover.
type holdings map[holding][]shard.Range

func holdingsOf(r *evidence.Run) holdings {
	out := holdings{}
	for e := range r.All {
		if e.Kind == trace.KindDigest && e.What != trace.WorkerGrad {
			k := holding{e.Rank, e.Step, e.What, e.Tensor}
			out[k] = append(out[k], shard.Range{Lo: int(e.Lo), Hi: int(e.Hi)})
		}
	}
	return out
}

// places are those in the group whose ranks hold some of a cut.
func (held holdings) places(x *part, c sharding.Cut, step int, what string) []int {
	var out []int
	for place, rank := range x.group {
		if len(held.within(x, c, rank, step, what)) > 0 {
			out = append(out, place)
		}
	}
	return out
}

// within joins a rank's ranges within a sharding.Cut, ascending.
func (held holdings) within(x *part, c sharding.Cut, rank, step int, what string) []shard.Range {
	var found []shard.Range
	for _, q := range x.params() {
		for _, h := range held[holding{rank, step, what, q.Name}] {
			if h = h.Intersect(c.Range); !h.Empty() {
				found = append(found, h)
			}
		}
	}
	slices.SortFunc(found, func(a, b shard.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	var out []shard.Range
	for _, h := range found {
		if n := len(out); n > 0 && out[n-1].Hi == h.Lo {
			out[n-1].Hi = h.Hi
		} else {
			out = append(out, h)
		}
	}
	return out
}

// owned is a range with the rank that holds it.
type owned struct {
	shard.Range
	rank int
}

// checkCut judges one sharding unit of one group in one step.
func checkCut(p *contract.Pass, r *evidence.Run, held holdings, x *part, c sharding.Cut, step int, what string) {
	finding := func(rank int, got, want any, format string, args ...any) {
		p.At(rank, step).In(r.Moment(trace.Event{Kind: trace.KindDigest, Step: step, What: what})).Report(got, want, "%s of %s: %s", what, c.Name, fmt.Sprintf(format, args...))
	}
	var shares []owned
	complete := true
	for place, rank := range x.group {
		want, got := c.Own(place), held.within(x, c, rank, step, what)
		if !want.Empty() {
			p.Expect(1)
		}
		if len(got) > 0 {
			p.Saw(1)
		}
		complete = complete && (want.Empty() || len(got) > 0)
		if len(got) > 1 {
			finding(rank, got, "one range", "the shard of rank %d is not contiguous", rank)
		}
		if sharding.ByElements(r.Config.Plan) && len(got) == 1 && got[0] != want {
			finding(rank, text(got[0]), text(want), "rank %d holds %d elements, the shard rule gives it %d", rank, got[0].Len(), want.Len())
		}
		for _, g := range got {
			shares = append(shares, owned{g, rank})
		}
	}
	slices.SortStableFunc(shares, func(a, b owned) int { return cmp.Compare(a.Lo, b.Lo) })
	next := owned{shard.Range{Lo: c.Lo, Hi: c.Lo}, -1}
	for _, s := range append(shares, owned{shard.Range{Lo: c.Hi, Hi: c.Hi}, -1}) {
		switch {
		case s.Lo < next.Hi && s.rank >= 0:
			finding(s.rank, text(s.Range), nil, "ranks %d and %d both hold elements from %d", next.rank, s.rank, s.Lo)
		case s.Lo > next.Hi && complete:
			finding(-1, nil, nil, "no rank holds elements [%d,%d)", next.Hi, s.Lo)
		}
		if s.Hi > next.Hi {
			next = s
		}
	}
}

func text(r shard.Range) string { return fmt.Sprintf("[%d,%d)", r.Lo, r.Hi) }
