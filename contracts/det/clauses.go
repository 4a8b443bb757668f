package det

import (
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
)

// GoldenPrefix begins the names of the golden cases; the rest is the name of the
// golden run.
const GoldenPrefix = "golden "

// OneThread is the role of the run on one thread.
const OneThread contract.Role = "one thread"

// same is clause 1: every digest and every scalar of two runs.
func same(p *contract.Pass, a, b *evidence.Run) {
	if repeatable(a.Config) != repeatable(b.Config) {
		p.Doubt("the second run is of another configuration")
		return
	}
	p.Expect(least(a))
	for rank := range a.Header.World {
		compare(p, b, rank, results(a, rank), results(b, rank))
	}
}

// repeatable is a configuration without what changes no bit of a step: what it is
// computed on, and how many others follow.
func repeatable(cfg spec.Config) string {
	cfg.Backend, cfg.Steps = "", 1
	return string(cfg.Spec())
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
	var out []trace.Event
	for _, e := range r.Ranks[rank] {
		switch e.Kind {
		case trace.KindDigest, trace.KindChanged, trace.KindScalar, trace.KindSkip:
			out = append(out, e)
		}
	}
	return out
}

// compare goes through the results of one rank in both runs and reports the first
// that differs: what follows is its consequence.
func compare(p *contract.Pass, b *evidence.Run, rank int, first, second []trace.Event) {
	for i := range min(len(first), len(second)) {
		x, y := first[i], second[i]
		if owed(x) {
			p.Saw(1)
		}
		if x.Kind == trace.KindDigest {
			evidence.Lost(p, x.Step, x.What, x)
		}
		at := p.At(rank, x.Step).Of(x.Tensor).In(b.Moment(x)).By(contract.Again).Against(contract.Test)
		switch {
		case !alignable(x, y):
			at.Report(nil, nil,
				"rank %d: the second run did something else: %s %s, not %s %s", rank, y.Kind, y.What, x.Kind, x.What)
		case x.Kind == trace.KindScalar && !evidence.SameScalar(x, y):
			at.Report(float64(y.Value), float64(x.Value), "rank %d: %s is another in the second run", rank, x.What)
		case x.Kind != trace.KindScalar && x.Kind != trace.KindSkip && !evidence.Same(x, y):
			b.Report(at, y, x, "rank %d: %s %s is another in the second run", rank, x.Kind, x.What)
		default:
			continue
		}
		return
	}
	if len(first) != len(second) {
		p.Doubt("rank %d: one run recorded %d results, the other %d", rank, len(first), len(second))
	}
}

// owed reports whether an event is among those that same expects; others are
// compared beside them.
func owed(e trace.Event) bool {
	return e.Kind == trace.KindScalar && e.What == trace.Loss || e.Kind == trace.KindDigest && e.What != trace.WorkerGrad
}

// alignable reports whether two events are about the same thing.
func alignable(x, y trace.Event) bool {
	return x.Kind == y.Kind && x.Step == y.Step && x.What == y.What && x.Tensor == y.Tensor && x.Worker == y.Worker && x.Text == y.Text
}

// other is clause 2: with another seed all initial matrices and biases, and the
// fingerprints of all steps, are others.
func other(p *contract.Pass, a, b *evidence.Run) {
	if a.Config.Seed == b.Config.Seed {
		p.Doubt("both runs have seed %d", a.Config.Seed)
		return
	}
	for _, t := range a.Params {
		if strings.HasSuffix(t.Name, "norm.weight") {
			continue // 1 whatever the seed
		}
		x, ok1 := a.Logical(a.First-1, trace.Weight, t.Name, 0)
		y, ok2 := b.Logical(b.First-1, trace.Weight, t.Name, 0)
		if p.Found(ok1 && ok2) && *x.Digest == *y.Digest {
			p.At(-1, -1).Of(t.Name).Report(nil, nil, "initial weights are the same with seeds %d and %d", a.Config.Seed, b.Config.Seed)
		}
	}
	for step := a.First; step < a.Steps; step++ {
		if x, y, ok := fingerprints(p, a, b, step); ok && x == y {
			p.At(-1, step).Report(y, nil, "the fingerprint is the same with seeds %d and %d", a.Config.Seed, b.Config.Seed)
		}
	}
}

// fingerprints are those of two runs after a step, expected as one piece of
// evidence.
func fingerprints(p *contract.Pass, a, b *evidence.Run, step int) (x, y spec.Fingerprint, ok bool) {
	x, err1 := spec.FingerprintAt(a.History, step)
	y, err2 := spec.FingerprintAt(b.History, step)
	return x, y, p.Found(err1 == nil && err2 == nil)
}

// fingerprinted is clause 3.
func fingerprinted(p *contract.Pass, r *evidence.Run) {
	name, ok := strings.CutPrefix(p.Case, GoldenPrefix)
	if !ok {
		p.Doubt("case %q is no golden run", p.Case)
		return
	}
	g, err := golden.LoadFingerprints(name)
	if err == nil {
		err = g.Comparable(r.Config, r.Header.Arithmetic, r.Config.TextHash)
	}
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	against(p, r, g)
}

// against compares a run with the golden one, step by step; the first step that
// differs is reported.
func against(p *contract.Pass, r *evidence.Run, g *golden.Fingerprints) {
	if r.Config.Steps > len(g.Steps) {
		p.Doubt("golden %s has %d steps, the run %d", g.Name, len(g.Steps), r.Config.Steps)
	}
	for step := r.First; step < min(r.Steps, len(g.Steps)); step++ {
		at := p.At(-1, step).Against(contract.Golden)
		coef, ok := r.Scalar(0, step, trace.Coef)
		contract.Compare(at.In(contract.Norm, 0), ok, coef.Value < 1, slices.Contains(g.Clipped, step),
			"the gradient is clipped in another step than in the golden run")
		got, err := spec.FingerprintAt(r.History, step)
		if !p.Found(err == nil) {
			p.Doubt("%v", err)
			return
		}
		if want := g.Steps[step]; got != want {
			at.In(arises(got, want), 0).Report(got, want, "the %s of golden run %s differs", differing(got, want), g.Name)
			return
		}
	}
}

// arises is when in its step two fingerprints differ first.
func arises(a, b spec.Fingerprint) contract.Phase {
	if a.Loss != b.Loss {
		return contract.Reduction
	}
	return contract.Update
}

// differing names the parts of a fingerprint that differ.
func differing(a, b spec.Fingerprint) string {
	var out []string
	if a.Loss != b.Loss {
		out = append(out, "loss")
	}
	if a.Moments != b.Moments {
		out = append(out, "moments")
	}
	if a.Weights != b.Weights {
		out = append(out, "weights")
	}
	return strings.Join(out, ", ")
}

// invariant is clause 4: all runs of the case have the test's fingerprints.
func invariant(p *contract.Pass, r *evidence.Run) {
	roles := slices.DeleteFunc(slices.Sorted(maps.Keys(p.Histories)), func(x contract.Role) bool { return x == contract.Test })
	if len(roles) == 0 {
		p.Doubt("there is one run only")
	}
	for _, role := range roles {
		if x, ok := evidence.Read(p, role); ok {
			alike(p, role, r, x)
		}
	}
}

// alike compares the fingerprints of two runs until they differ.
func alike(p *contract.Pass, role contract.Role, a, b *evidence.Run) {
	if err := evidence.SameTask(a, b); err != nil {
		p.Doubt("%s run: %v", role, err)
		return
	}
	for step := a.First; step < a.Steps; step++ {
		if x, y, ok := fingerprints(p, a, b, step); ok && x != y {
			p.At(-1, step).Of(first(a, b, step)).In(arises(y, x), 0).By(role).Against(contract.Test).Report(y, x, "the %s of the run %q differs from that of one rank", differing(y, x), role)
			return
		}
	}
}

// first is the first parameter whose weights differ after a step.
func first(a, b *evidence.Run, step int) string {
	for _, t := range a.Params {
		x, _ := a.Logical(step, trace.Weight, t.Name, 0)
		y, _ := b.Logical(step, trace.Weight, t.Name, 0)
		if !evidence.Same(x, y) {
			return t.Name
		}
	}
	return ""
}

// SchedulePrefix begins the names of the cases that run a recorded schedule.
const SchedulePrefix = "schedule "

// scheduled is clause 5: every rank has the recorded learning rate in every step.
func scheduled(p *contract.Pass, r *evidence.Run) {
	name, ok := strings.CutPrefix(p.Case, SchedulePrefix)
	if !ok {
		p.Doubt("case %q runs no recorded schedule", p.Case)
		return
	}
	s, err := golden.LoadSchedule(name)
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	if !follows(r, name) || r.Config.Steps != len(s.Rates) {
		p.Doubt("the run has another schedule than %s, or not its %d steps", name, len(s.Rates))
		return
	}
	for step, want := range s.Rates {
		for rank := range r.Header.World {
			e, ok := r.Scalar(rank, step, trace.LR)
			contract.Compare(p.At(rank, step), ok, float64(e.Value), want,
				"the learning rate of rank %d is not the recorded one of schedule %s", rank, name)
		}
	}
}

// follows reports whether a run was asked to follow a recorded schedule.
func follows(r *evidence.Run, name string) bool {
	for _, v := range golden.ScheduleVariants() {
		a, b := v.Config, r.Config.Optimizer
		if v.Name == name {
			return a.LR == b.LR && a.Warmup == b.Warmup && a.Horizon == b.Horizon && a.MinLR == b.MinLR
		}
	}
	return false
}
