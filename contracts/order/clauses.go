package order

import (
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Roles are the scheduled runs of a case: all but the control. Of the schedules
// that a case must have, those that are missing are a doubt.
func Roles(p *contract.Pass) []contract.Role {
	for _, role := range Schedules() {
		if _, ok := p.Histories[role]; !ok {
			p.Doubt("no run goes by the schedule %q", role)
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p.Histories)), func(x contract.Role) bool { return x == contract.Control })
}

// Schedules are the roles of the schedules that every case has, beside the test
// run, which goes by a seed.
func Schedules() []contract.Role {
	return []contract.Role{"lowest rank first", "highest rank first", "one after the other", "reductions late", "reductions at once"}
}

// same is clause 1.
func same(p *contract.Pass, role contract.Role, r, control *evidence.Run) {
	seen := 0
	for rank := range r.Header.World {
		p.Found(turns(r, rank))
		seen += compare(p, role, r, results(r, rank), results(control, rank), rank)
	}
	p.Count(least(r), seen)
}

// least is how many results a run records at the least: of all that a rank holds
// the initial state, and in every step the state, the gradient and, on the last
// stage, the loss.
func least(r *evidence.Run) int {
	held, n := r.Held(), 0
	for _, t := range r.Params {
		for _, what := range r.State() {
			n += (1 + r.Len()) * r.Records(held[t.Name], what)
		}
		n += r.Len() * r.Records(held[t.Name], trace.Grad)
	}
	return n + r.Len()*r.Header.World/r.Config.Plan.PP
}

// results are the events of a rank that hold numbers.
func results(r *evidence.Run, rank int) []trace.Event {
	return slices.DeleteFunc(slices.Clone(r.Ranks[rank]), func(e trace.Event) bool {
		switch e.Kind {
		case trace.KindDigest, trace.KindChanged, trace.KindScalar, trace.KindSkip:
			return false
		}
		return true
	})
}

// owed reports whether a result is among those that least counts.
func owed(e trace.Event) bool {
	return e.Kind == trace.KindScalar && e.What == trace.Loss || e.Kind == trace.KindDigest && e.What != trace.WorkerGrad && e.What != trace.Updated
}

// compare reports the first result of a rank that is another than the control's,
// and counts those that are owed.
func compare(p *contract.Pass, role contract.Role, r *evidence.Run, got, want []trace.Event, rank int) (seen int) {
	for i := range min(len(got), len(want)) {
		x, y := got[i], want[i]
		if owed(x) {
			seen++
		}
		at := p.At(rank, x.Step).Of(x.Tensor).In(r.Moment(x)).Against(contract.Control)
		switch {
		case x.Kind != y.Kind || x.Step != y.Step || x.What != y.What || x.Tensor != y.Tensor || x.Worker != y.Worker || x.Text != y.Text:
			at.Report(nil, nil, "by schedule %q rank %d did something else: %s %s, not %s %s", role, rank, x.Kind, x.What, y.Kind, y.What)
		case x.Kind == trace.KindScalar && !evidence.SameScalar(x, y):
			at.Report(float64(x.Value), float64(y.Value), "by schedule %q %s of rank %d is another", role, x.What, rank)
		case x.Digest != nil && !evidence.Same(x, y):
			r.Report(at, x, y, "by schedule %q %s %s of rank %d is another", role, x.Kind, x.What, rank)
		default:
			continue
		}
		return seen
	}
	if len(got) != len(want) {
		p.Doubt("rank %d recorded %d results by schedule %q, %d in the control", rank, len(got), role, len(want))
	}
	return seen
}

// turns reports whether a rank's history says that it was scheduled and watched.
func turns(r *evidence.Run, rank int) bool {
	for e := range r.Events(rank, trace.KindTurns) {
		if e.Count > 0 && e.Index > 0 {
			return true
		}
	}
	return false
}

// unhurt is clause 2. What is not finite is reported where no use of memory
// explains it.
func unhurt(p *contract.Pass, role contract.Role, r, _ *evidence.Run) {
	seen, explained := 0, false
	for rank := range r.Header.World {
		p.Found(turns(r, rank))
		for e := range r.Events(rank, trace.KindHazard) {
			if !ends(e.What) {
				explained = true
				p.At(rank, e.Step).Of(e.Unit).In(contract.Memory, 0).Report(nil, nil, "by schedule %q: %s: %s", role, e.What, e.Text)
			}
		}
	}
	for rank := range r.Header.World {
		hurt := explained
		for _, e := range results(r, rank) {
			if owed(e) {
				seen++
			}
			if !evidence.Finite(e) && !hurt {
				hurt = true // all that follows on this rank comes of it, or of another rank's
				p.At(rank, e.Step).Of(e.Tensor).In(r.Moment(e)).Report(nil, nil, "by schedule %q: %d elements of %s are not finite", role, e.Digest.NonFinite, e.What)
			}
		}
	}
	p.Count(least(r), seen)
}

// ended is clause 3. Why a run came to nothing is told before whom it ended.
//
// A run that breaks down without a schedule as well says nothing of schedules: what it
// broke down of is why the clause has no evidence. Ranks that wait for each other do
// by themselves what no order of ranks may lead to.
func ended(p *contract.Pass, role contract.Role, r, control *evidence.Run) {
	told := map[int]bool{}
	broken := control.CutOff() != ""
	for rank := range r.Header.World {
		for e := range r.Events(rank, trace.KindHazard) {
			if ends(e.What) {
				told[rank] = true
				if broken && e.What == trace.Failed {
					p.Doubt("by schedule %q rank %d fails in step %d, and so does the run that nobody schedules: %s", role, rank, e.Step, e.Text)
					continue
				}
				p.At(rank, e.Step).Report(nil, nil, "by schedule %q: %s", role, e.Text)
			}
		}
	}
	for rank := range r.Header.World {
		end := false
		for range r.Events(rank, trace.KindEnd) {
			end = true
		}
		if p.Found(turns(r, rank)) && !end && !told[rank] && !broken {
			p.At(rank, last(r, rank)).Report(nil, nil, "by schedule %q rank %d did not end", role, rank)
		}
	}
}

// ends reports whether a hazard is why a run comes to nothing.
func ends(what string) bool { return what == trace.Deadlock || what == trace.Failed }

// last is the last step that a rank recorded something of.
func last(r *evidence.Run, rank int) int {
	step := -1
	for _, e := range r.Ranks[rank] {
		step = max(step, e.Step)
	}
	return step
}
