package ddp

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// collective is an operation that a plan has, by what it is called with. Count -1 is
// any number of elements, most -1 any number of times in a step; an empty range is
// any.
type collective struct {
	op, unit string
	count    int64
	at       shard.Range
	most     int
	group    names.Axis
}

// planned lists what a rank may issue, before the first step or in one, in the
// groups of data-parallel ranks and of the world.
func planned(r *evidence.Run, rank int, before bool) []collective {
	out := []collective{
		{op: names.OpAllGatherBytes, unit: names.Agree, count: -1, most: -1, group: names.DP},
	}
	for _, l := range r.Layouts(rank) {
		if before {
			out = append(out, started(r, &l)...)
			continue
		}
		zero := sharding.Of(r.Config.Plan, r.Config.Model, &l, len(r.Moments()))
		for _, c := range zero.Traffic() {
			one := collective{op: c.Op, unit: c.Label, count: int64(c.Elements), at: placed(&l, c.Label), most: c.Times, group: names.DP}
			if !c.Gradient {
				one.most = -1 // a tied head gathers the embedding; C-ZERO-001.6 counts the bytes
			}
			if !c.Gradient && !sharding.ByElements(r.Config.Plan) {
				one.op = names.OpBroadcast // by the owner
				out = append(out, one.tensors(&l)...)
			}
			out = append(out, one)
		}
		if l.Part.Last {
			times := 1
			if zero.Stage >= 2 {
				times = zero.Workers / zero.DP
			}
			out = append(out, collective{op: names.OpAllReduce, unit: trace.Loss, count: 1, at: shard.Range{Hi: 1}, most: times, group: names.DP})
		}
	}
	if !before {
		out = append(out,
			collective{op: names.OpAllReduceInt, unit: names.Tokens, count: 1, most: 1, group: names.DP},
			collective{op: names.OpAllReduceInt, unit: trace.Norm, count: int64(len(kernels.SquareSum{})), most: 1, group: names.World})
	}
	return joined(out)
}

// joined makes one of operations that nothing tells apart: those of two chunks of a
// rank.
func joined(all []collective) []collective {
	var out []collective
	for _, c := range all {
		n := c.most
		i := slices.IndexFunc(out, func(o collective) bool { o.most = n; return o == c })
		if i < 0 {
			out = append(out, c)
		} else if n >= 0 {
			out[i].most += n
		}
	}
	return out
}

// tensors are operations on the tensors of a unit, one by one: they may have several
// owners.
func (c collective) tensors(l *model.Layout) []collective {
	var out []collective
	for _, u := range l.Units {
		for _, i := range u.Params {
			if q := &l.Params[i]; u.Name == c.unit {
				c := c
				c.unit, c.count, c.at = q.Name, int64(q.Len()), shard.Range{Lo: q.Off, Hi: q.Off + q.Len()}
				out = append(out, c)
			}
		}
	}
	return out
}

// started are the broadcasts of a part's initial weights.
func started(r *evidence.Run, l *model.Layout) []collective {
	var out []collective
	for _, u := range l.Units {
		if u.Hi <= l.Weights && r.Config.Plan.Zero < 3 {
			out = append(out, collective{op: names.OpBroadcast, unit: u.Name, count: int64(u.Hi - u.Lo), at: shard.Range{Lo: u.Lo, Hi: u.Hi}, most: 1, group: names.DP})
		}
	}
	return out
}

// placed is where in a rank's buffers a unit, a tensor or the whole vector lies; empty
// where none has the label.
func placed(l *model.Layout, label string) shard.Range {
	if label == names.WholeVector {
		return shard.Range{Hi: l.Owned}
	}
	for _, u := range l.Units {
		if u.Name == label {
			return shard.Range{Lo: u.Lo, Hi: u.Hi}
		}
	}
	for _, q := range l.Params {
		if q.Name == label {
			return shard.Range{Lo: q.Off, Hi: q.Off + q.Len()}
		}
	}
	return shard.Range{}
}

// foreseen checks that each operation among a rank's data-parallel ranks, and of the
// whole world, is one of the plan's: with its size and place, and no more often.
func foreseen(p *contract.Pass, r *evidence.Run, rank int) {
	plans := map[bool][]collective{true: planned(r, rank, true), false: planned(r, rank, false)}
	times := map[int]map[int]int{} // by step and place in its plan
	for e := range r.Events(rank, trace.KindComm) {
		if !judged(e) {
			continue
		}
		all := plans[e.Step < r.First]
		i := slices.IndexFunc(all, func(c collective) bool { return c.fits(r, e) })
		if i < 0 {
			p.At(rank, e.Step).In(r.Moment(e)).Report(written(e), nearest(all, e), "rank %d issued an operation of group %s that the plan does not have: %s", rank, e.Group, written(e))
			continue
		}
		if times[e.Step] == nil {
			times[e.Step] = map[int]int{}
		}
		if times[e.Step][i]++; all[i].most >= 0 && times[e.Step][i] == all[i].most+1 {
			p.At(rank, e.Step).In(r.Moment(e)).Report(nil, all[i].most, "rank %d issued %s of group %s more than %d times in the step", rank, written(e), e.Group, all[i].most)
		}
	}
}

// judged reports whether an event is an operation that the plan says something of:
// not the making of communicators or what checkpoints exchange, nor one that nobody
// named or that failed.
func judged(e trace.Event) bool {
	return (e.Group == names.DP || e.Group == names.World) && e.Op != names.OpSplit && e.Unit != "" && e.Unit != names.Checkpoint && e.Text == ""
}

// fits reports whether an operation is one of these. What it does not say of its
// place is not judged.
func (c *collective) fits(r *evidence.Run, e trace.Event) bool {
	one := r.Header.World == r.Config.Plan.DP // then one group may serve for both
	return c.op == e.Op && c.unit == e.Unit && (c.group == e.Group || one) && (c.count < 0 || c.count == e.Count) &&
		(c.at.Empty() || e.Hi == 0 || e.Lo == int64(c.at.Lo) && e.Hi == int64(c.at.Hi))
}

// nearest writes the plan's operation on what an event is called with, or else with
// its place.
func nearest(all []collective, e trace.Event) string {
	for _, same := range []func(c collective) bool{
		func(c collective) bool { return c.unit == e.Unit && c.op == e.Op },
		func(c collective) bool { return c.unit == e.Unit },
		func(c collective) bool { return e.Hi != 0 && int64(c.at.Lo) == e.Lo && int64(c.at.Hi) == e.Hi },
	} {
		if i := slices.IndexFunc(all, same); i >= 0 {
			c := all[i]
			return written(trace.Event{Op: c.op, Unit: c.unit, Count: c.count, Lo: int64(c.at.Lo), Hi: int64(c.at.Hi)})
		}
	}
	return "none"
}

func written(e trace.Event) string {
	s := fmt.Sprintf("%s of %s, %d elements", e.Op, e.Unit, e.Count)
	if e.Hi != 0 {
		s += fmt.Sprintf(" [%d,%d)", e.Lo, e.Hi)
	}
	return s
}
