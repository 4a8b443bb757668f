package zero

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// gathered is clause 3: what ranks hold after a gather is equal and made of what
// the owners gave.
func gathered(p *contract.Pass, r *evidence.Run) {
	for _, x := range all(r) {
		if r.Config.Plan.Zero == 3 {
			x.uses(p, r)
			continue
		}
		for _, q := range x.params() {
			for step := r.First - 1; step < r.Steps; step++ {
				x.published(p, r, q, step)
			}
		}
	}
}

// published compares a rank's weights after the step with what their owners made
// of them; before the first step with those of the group's first rank.
func (x *part) published(p *contract.Pass, r *evidence.Run, q *model.Param, step int) {
	got, ok := r.Digest(x.rank, step, trace.Weight, q.Name, 0)
	want, has := r.Digest(x.group[0], step, trace.Weight, q.Name, 0)
	if step >= r.First {
		want, has = total(r, x.group, step, trace.Updated, q.Name, 0)
		has = has && want.Count == int64(q.Len())
	}
	r.Compare(p.At(x.rank, step).Of(q.Name), ok && has, got, want,
		"the weights of rank %d after the gather are not what their owners (ranks %v) have", x.rank, x.group)
}

// uses compares every unit that a pass found gathered with the shards at rest
// after the step before.
func (x *part) uses(p *contract.Pass, r *evidence.Run) {
	want := x.versions(r)
	p.Expect(r.Len() * x.passes(r))
	for e := range r.Events(x.rank, trace.KindGather) {
		w, ok := want[version{e.Unit, e.Step - 1}]
		if !ok || e.What != names.Use || e.Digest == nil {
			continue
		}
		p.Saw(1)
		if !evidence.Same(e, w) {
			r.Report(p.At(x.rank, e.Step).Of(e.Unit), e, w,
				"micro-batch %d: unit %s as rank %d gathered it is not what its owners (ranks %v) have", e.Micro, e.Unit, x.rank, x.group)
		}
	}
}

// passes is the number of times that a step uses units: each in a forward and a
// backward pass of every micro-batch.
func (x *part) passes(r *evidence.Run) int {
	return 2 * len(x.layout.Units) * r.Config.Plan.MicroBatches
}

// version is a unit's weights after a step.
type version struct {
	unit string
	step int
}

// versions adds up the shards at rest, by unit and step, where all are recorded.
func (x *part) versions(r *evidence.Run) map[version]trace.Event {
	out := map[version]trace.Event{}
	for _, unit := range x.layout.Units {
		for step := r.First - 1; step < r.Steps; step++ {
			var sum trace.Event
			complete := true
			for _, i := range unit.Params {
				q := &x.layout.Params[i]
				e, ok := total(r, x.group, step, trace.Weight, q.Name, 0)
				if complete = ok && e.Count == int64(q.Len()); !complete {
					break
				}
				sum = evidence.Add(sum, e)
			}
			if complete {
				out[version{unit.Name, step}] = sum
			}
		}
	}
	return out
}

// resting is clause 4: where weights are between and during passes.
func resting(p *contract.Pass, r *evidence.Run) {
	for rank := range r.Header.World {
		parts := partsOf(r, rank)
		if r.Config.Plan.Zero == 3 {
			follow(p, r, rank, parts)
			continue
		}
		for _, x := range parts {
			x.whole(p, r)
		}
		for e := range r.Events(rank, trace.KindGather) {
			p.At(rank, e.Step).Report(nil, nil, "rank %d recorded the %s of unit %s: in stage %d weights stay whole", rank, e.What, e.Unit, r.Config.Plan.Zero)
		}
	}
}

// whole checks that a rank holds all its weights after every step.
func (x *part) whole(p *contract.Pass, r *evidence.Run) {
	for _, q := range x.params() {
		for step := r.First - 1; step < r.Steps; step++ {
			e, ok := r.Digest(x.rank, step, trace.Weight, q.Name, 0)
			contract.Compare(p.At(x.rank, step).Of(q.Name), ok, e.Count, int64(q.Len()),
				"rank %d holds %d elements of a weight: in stage %d weights stay whole", x.rank, e.Count, r.Config.Plan.Zero)
		}
	}
}

// follower walks through a rank's events of stage 3.
type follower struct {
	p        *contract.Pass
	run      *evidence.Run
	rank     int
	versions map[version]trace.Event
	alias    map[string]string // unit of a tied head to the unit whose weights it reads
	open     map[string]bool   // gathered units; true once a pass has used them
}

// follow checks that every pass of a rank finds its unit gathered and leaves it
// to be released, and that nothing is gathered when the step ends.
func follow(p *contract.Pass, r *evidence.Run, rank int, parts []*part) {
	f := &follower{p: p, run: r, rank: rank, versions: map[version]trace.Event{}, alias: map[string]string{}, open: map[string]bool{}}
	for _, x := range parts {
		p.Expect(r.Len() * x.passes(r))
		maps.Copy(f.versions, x.versions(r))
		if x.layout.Part.First {
			f.alias[model.HeadUnit] = model.EmbedUnit
		}
	}
	p.Expect(r.Len()) // ends of steps
	for _, e := range r.Ranks[rank] {
		switch e.Kind {
		case trace.KindGather:
			f.gather(e)
		case trace.KindPhase:
			f.phase(e)
		case trace.KindMemory:
			if e.What == names.MemWeights {
				f.end(e)
			}
		}
	}
}

func (f *follower) report(e trace.Event, format string, args ...any) {
	f.p.At(f.rank, e.Step).Of(e.Unit).Report(nil, nil, "micro-batch %d on rank %d: unit %s %s", e.Micro, f.rank, e.Unit, fmt.Sprintf(format, args...))
}

func (f *follower) gather(e trace.Event) {
	_, open := f.open[e.Unit]
	switch e.What {
	case names.Gather:
		if open {
			f.report(e, "is gathered again: it was not released")
		}
		if w, ok := f.versions[version{e.Unit, e.Step - 1}]; ok && e.Count != w.Count {
			f.report(e, "is gathered with %d elements: its shards have %d", e.Count, w.Count)
		}
		f.open[e.Unit] = false
	case names.Use:
		if !open {
			f.report(e, "is used without a gather")
		}
		f.open[e.Unit] = true
		f.compare(e, "a pass finds")
	case names.Release:
		if !open {
			f.report(e, "is released without a gather")
		}
		f.compare(e, "a pass leaves")
		delete(f.open, e.Unit)
	}
}

// compare holds a unit's contents against the weights after the last step.
func (f *follower) compare(e trace.Event, who string) {
	want, ok := f.versions[version{e.Unit, e.Step - 1}]
	if !ok || e.Digest == nil || evidence.Same(e, want) {
		return
	}
	for step := e.Step - 2; step >= f.run.First-1; step-- {
		if old, ok := f.versions[version{e.Unit, step}]; ok && evidence.Same(e, old) {
			f.report(e, "has the weights after step %d when %s it, not those after step %d", step, who, e.Step-1)
			return
		}
	}
	f.report(e, "does not have the weights after step %d when %s it", e.Step-1, who)
}

// phase is a pass that is done with a unit.
func (f *follower) phase(e trace.Event) {
	f.p.Saw(1)
	if used := f.open[cmp.Or(f.alias[e.Unit], e.Unit)]; !used {
		f.report(e, "went through a %s pass without being gathered for it", e.What)
	}
}

// end is the end of a step: only the shards remain.
func (f *follower) end(e trace.Event) {
	f.p.Saw(1)
	for _, unit := range slices.Sorted(maps.Keys(f.open)) {
		f.report(trace.Event{Step: e.Step, Unit: unit}, "is still gathered when the step ends")
	}
	if want := memory(f.run, f.rank)[names.MemWeights].end; uint64(e.Count) != want {
		f.p.At(f.rank, e.Step).Report(e.Count, want, "rank %d holds %d bytes of weights at rest, its shard has %d", f.rank, e.Count, want)
	}
}
