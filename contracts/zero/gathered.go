package zero

import (
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
			for step := -1; step < r.Config.Steps; step++ {
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
	if step >= 0 {
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
	p.Expect(r.Config.Steps * x.passes(r))
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
		for step := -1; step < r.Config.Steps; step++ {
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
