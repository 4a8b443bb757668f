// Package compare compares a run of any plan with its control, which has the
// whole model on every rank (plan.Plan.Unsplit): slices and shards of a tensor
// must add up to the control's, and copies of one slice must be equal.
package compare

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Comparison holds the two runs of one pass.
type Comparison struct {
	Test, Control *evidence.Run
	// Held says who holds what of each parameter of the test run.
	Held map[string][]evidence.Holding
	// Same is whether the plan promises the control's bits. Where it does not, the
	// runs part when the first sums over workers do: then Equal is the step
	// before which activations and workers' gradients must still be equal.
	Same  bool
	Equal int

	p       *contract.Pass
	control map[string][]evidence.Holding
}

// Open reads the test run and its control, which has the whole model on every
// rank. The pass doubts and ok is false where one is missing, they are of
// different tasks, or the plan does not promise the control's bits.
func Open(p *contract.Pass) (c *Comparison, ok bool) {
	return open(p, evidence.Read, started)
}

// OpenResumed is Open for a test run that goes on where its control never stopped.
func OpenResumed(p *contract.Pass) (c *Comparison, ok bool) {
	return open(p, evidence.ReadResumed, func(*Comparison) error { return nil })
}

// started refuses a control that does not start where the test run does: with the
// state that was loaded, where that goes on from a checkpoint.
func started(c *Comparison) error {
	if c.Test.First != c.Control.First {
		return fmt.Errorf("the run begins with step %d, the control with step %d: they have no state in common", c.Test.First, c.Control.First)
	}
	return nil
}

func open(p *contract.Pass, read func(*contract.Pass, contract.Role) (*evidence.Run, bool), start func(*Comparison) error) (*Comparison, bool) {
	test, ok := read(p, contract.Test)
	if !ok {
		return nil, false
	}
	return with(p, test, start, func(c *Comparison) error {
		if err := unsplit(c); err != nil || c.Same {
			return err
		}
		return fmt.Errorf("plan %s does not promise the bits of %s", test.Config.Plan, c.Control.Config.Plan)
	})
}

// With reads the control beside the test run. The pass doubts and ok is false
// where it is missing, of another task, or fits says why it is not what the clause
// compares with.
func With(p *contract.Pass, test *evidence.Run, fits func(*Comparison) error) (c *Comparison, ok bool) {
	return with(p, test, started, fits)
}

func with(p *contract.Pass, test *evidence.Run, start, fits func(*Comparison) error) (c *Comparison, ok bool) {
	control, ok := evidence.Read(p, contract.Control)
	if !ok {
		return nil, false
	}
	c = &Comparison{Test: test, Control: control, Held: test.Held(), p: p, control: control.Held()}
	switch {
	case test.Config.Plan.SameBits(control.Config.Plan, test.Config.Model):
		c.Same, c.Equal = true, test.Steps
	case test.Config.Plan.CanonicalActivations():
		c.Equal = test.First + 1
	}
	err := evidence.SameTask(test, control)
	for _, check := range []func(*Comparison) error{start, fits} {
		if err == nil {
			err = check(c)
		}
	}
	if err != nil {
		p.Doubt("%v", err)
		return nil, false
	}
	for _, kind := range evidence.Regular() {
		// Stage 1 of ZeRO hands nothing over where it scatters the whole vector.
		if kind != trace.KindIssue && control.Some(kind) && !test.Some(kind) {
			p.Doubt("the run recorded no %s event, its control did", kind)
		}
	}
	return c, true
}

// unsplit refuses a control without the whole model on every rank, and a plan of
// which nothing must be equal to it.
func unsplit(c *Comparison) error {
	test, control := c.Test.Config.Plan, c.Control.Config.Plan
	if d := control.Dims(); d.TP > 1 || d.PP > 1 || c.Control.Workers != c.Test.Workers {
		return fmt.Errorf("the control's plan is %s: want that of %s without stages and slices", control, test)
	}
	if c.Equal == 0 {
		return fmt.Errorf("plan %s adds the partial sums of tensor-parallel ranks in an order of its own: nothing after the first of them has the dense model's bits", test)
	}
	return nil
}

// single refuses a control of several ranks.
func single(c *Comparison) error {
	if n := c.Control.Header.World; n != 1 {
		return fmt.Errorf("the control run has %d ranks, not one", n)
	}
	return nil
}

// Gradients compares, in every step in which they must be equal, the named
// tensors' gradients: each logical worker's, before any sum over workers, and the
// reduced one; where the plan does not promise that one, package bounded judges
// the step. names selects from the gradient sources, of which a tied head is one;
// nil is all.
func (c *Comparison) Gradients(names func(string) bool) {
	for step := c.Test.First; step < c.Equal; step++ {
		for w := range c.Test.Graded() {
			c.tensors(evidence.Named(c.Test.Sources, names), step, trace.WorkerGrad, w)
		}
		if c.Same {
			c.tensors(evidence.Named(c.Test.Params, names), step, trace.Grad, 0)
		}
	}
	if !c.Same {
		bounded.Judge(c.p, c.Test, names)
	}
}

// States compares the named parameters' weights and moments before the first step
// and after every one after which they must be equal.
func (c *Comparison) States(names func(string) bool) {
	c.State(c.Test.First-1, names)
	for step := c.Test.First; step < c.Test.Steps; step++ {
		if c.Same {
			c.State(step, names)
		}
	}
}

// State compares the named parameters' weights and moments at a step.
func (c *Comparison) State(step int, names func(string) bool) {
	for _, what := range c.Test.State() {
		c.tensors(evidence.Named(c.Test.Params, names), step, what, 0)
	}
}

func (c *Comparison) tensors(all []evidence.Tensor, step int, what string, worker int) {
	for _, t := range all {
		c.tensor(step, what, t.Name, worker)
	}
}

// Split reports whether ranks hold different slices of a parameter.
func (c *Comparison) Split(name string) bool {
	for _, h := range c.Held[name] {
		if h.Param.Len() < h.Param.Rows*h.Param.Cols {
			return true
		}
	}
	return false
}

// Expected is the number of copies of a tensor that the ranks record.
func (c *Comparison) Expected(what, name string) int {
	return c.Test.Records(c.Held[name], what)
}

// tensor compares one tensor in one step.
func (c *Comparison) tensor(step int, what, name string, worker int) {
	n := c.Expected(what, name)
	c.p.Expect(n)
	want, has := c.want(step, what, name, worker)
	copies := c.Test.Copies(c.Held[name], step, what, worker)
	if !has {
		return
	}
	if c.Test.Shared(what) { // a slice of which a share is missing proves nothing
		copies = slices.DeleteFunc(copies, func(x evidence.Copy) bool { return x.Event.Count < int64(x.Param.Len()) })
	}
	c.p.Saw(min(n, len(copies)))
	d := difference{Comparison: c, step: step, name: name, title: what}
	if what == trace.WorkerGrad {
		d.title = fmt.Sprintf("gradient of logical worker %d", worker)
	}
	evidence.Lost(c.p, step, what, want)
	groups := evidence.BySlice(copies)
	if !agree(groups, want) {
		d.locate(groups, want, len(copies) >= n)
	} else if got := evidence.Whole(groups); want.Squares != 0 && got.Digest != nil && !evidence.SameSquares(got, want) {
		c.p.Doubt("%s of %s in step %d: the squares of the run's elements are %v, those of the control's equal ones %v: one of the records was changed",
			d.title, name, step, got.Squares, want.Squares)
	}
}

// want is the control's digest of a whole tensor: that of the first rank that has
// it, or of all shares together.
func (c *Comparison) want(step int, what, name string, worker int) (trace.Event, bool) {
	copies := c.Control.Copies(c.control[name], step, what, worker)
	if len(copies) == 0 || !copies[0].Complete() {
		return trace.Event{}, false
	}
	return copies[0].Event, true
}

// Scalars compares scalars of every step with the control's, on the ranks that
// on selects (nil: all): those that the plan promises. The learning rate and the
// number of steps are no sums, so every plan promises them.
func (c *Comparison) Scalars(on func(rank int) bool, whats ...string) {
	for step := c.Test.First; step < c.Test.Steps; step++ {
		for _, what := range whats {
			if !c.Same && what != trace.LR && what != trace.Counter {
				continue
			}
			for rank := range c.Test.Header.World {
				if on == nil || on(rank) {
					c.Scalar(step, rank, 0, what, "differs from the control's")
				}
			}
		}
	}
}

// Scalar compares a rank's scalar with that of a rank of the control. differs
// says in a finding what is wrong with it.
func (c *Comparison) Scalar(step, rank, control int, what, differs string) {
	got, ok := c.Test.Scalar(rank, step, what)
	want, has := c.Control.Scalar(control, step, what)
	c.Test.CompareScalar(c.p.At(rank, step).Against(contract.Control), ok && has, got, want, "%s of rank %d %s", what, rank, differs)
}

// LastStage reports whether a rank of the test run is on the last stage.
func (c *Comparison) LastStage(rank int) bool { return c.Test.LastStage(rank) }
