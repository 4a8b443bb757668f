package contracts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	formulas "github.com/lockstep-ml/lockstep/contracts/formulas/suite"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// explain completes a report of violations: what their most likely cause is, whether
// the control that it differs from is wrong itself, and which elements differ where
// the run recorded digests only. All of it costs nothing where nothing is violated.
func (o *Options) explain(ctx context.Context, e *suite.Engine, r *report.Report, cs []*suite.Suite, trials map[*suite.Suite][]*suite.Trial) {
	r.Explain()
	for range maxControls {
		c := r.Cause
		if c == nil || ctx.Err() != nil {
			return
		}
		own, t := find(cs, trials, c)
		if t == nil {
			return
		}
		if c.Finding.Against == contract.Control && !blamed(r, t.Name) {
			if w, wrong := o.control(ctx, e, r, t, trials); wrong {
				r.Blame(w)
				continue // what is left may have another control
			}
		}
		if o.closer(ctx, e, r, own, t) {
			r.Explain()
		}
		return
	}
}

// maxControls bounds the controls that are looked into.
const maxControls = 4

// find is the contract and the trial that a cause is of; nil where it is of none.
func find(cs []*suite.Suite, trials map[*suite.Suite][]*suite.Trial, c *report.Cause) (*suite.Suite, *suite.Trial) {
	for _, s := range cs {
		if !slices.ContainsFunc(s.Clauses, func(cl *contract.Clause) bool { return cl.ID == c.Clause }) {
			continue
		}
		for _, t := range trials[s] {
			if t.Name == c.Finding.Case {
				return s, t
			}
		}
	}
	return nil, nil
}

// blamed reports whether the control of a case is known to be wrong.
func blamed(r *report.Report, name string) bool {
	return slices.ContainsFunc(r.Controls, func(c report.Control) bool { return c.Case == name })
}

// control looks for what is wrong with a trial's control: findings of other cases
// against a run of the same configuration, or, of one rank, what the formulas have
// against it.
func (o *Options) control(ctx context.Context, e *suite.Engine, r *report.Report, t *suite.Trial, trials map[*suite.Suite][]*suite.Trial) (w report.Control, wrong bool) {
	cfg := t.Runs[contract.Control].Config
	if cfg == nil {
		return w, false
	}
	w = report.Control{Case: t.Name, Plan: cfg.Plan.String()}
	for _, c := range r.Contracts {
		for _, cl := range c.Clauses {
			for _, f := range cl.Findings {
				if f.Of == "" && f.Against == "" && sameCase(trials, c.ID, f.Case, *cfg) {
					w.Clause = cl.ID
					return w, true
				}
			}
		}
	}
	if cfg.Plan.World() == 1 {
		return o.formulas(ctx, e, t, w, *cfg)
	}
	return w, false
}

// sameCase reports whether a contract's case tests a run of a configuration.
func sameCase(trials map[*suite.Suite][]*suite.Trial, contractID, name string, cfg spec.Config) bool {
	for s, all := range trials {
		for _, t := range all {
			test := t.Runs[contract.Test].Config
			if s.ID == contractID && t.Name == name && test != nil && runSpec(*test) == runSpec(cfg) {
				return true
			}
		}
	}
	return false
}

// formulas judges a control of one rank by C-MODEL-001.
func (o *Options) formulas(ctx context.Context, e *suite.Engine, t *suite.Trial, w report.Control, cfg spec.Config) (report.Control, bool) {
	if float64(cfg.Model.Params())*float64(cfg.Steps) > maxControlElements {
		return w, false
	}
	cfg.Recording = spec.Recording{Digests: true, Capture: true}
	text, err := o.text(cfg.Text)
	if err != nil {
		return w, false
	}
	c := formulas.Suite()
	one := formulas.Case(t.Name, cfg, suite.Options{Text: text})
	run := one.Runs[contract.Test]
	run.Key, run.Parts = "", t.Runs[contract.Control].Parts
	one.Runs[contract.Test] = run
	again := e.PlanOther(c.ID, one)
	if err := e.Run(ctx, again); err != nil || suite.Errors(again) != nil {
		return w, false
	}
	results, err := judge(ctx, c.Contract, []contract.Evidence{again.Evidence(o.Oracle)})
	if err != nil {
		return w, false
	}
	for _, res := range results {
		for _, f := range res.Findings {
			f.Of = contract.Control
			if w.Finding == nil || f.Compare(w.Finding) < 0 {
				w.Clause, w.Finding = res.Clause.ID, &f
			}
		}
	}
	if w.Finding != nil {
		w.Finding.Reproduce = o.line("--contract", c.ID, "--config", cfg.Model.Name) + o.flags()
	}
	return w, w.Finding != nil
}

// closer makes the runs of the cause's case again with their elements, where it was
// found by digests, and takes the values over; it reports whether it could. A finding
// that is not there the second time is noted: what is wrong is so now and then.
func (o *Options) closer(ctx context.Context, e *suite.Engine, r *report.Report, s *suite.Suite, t *suite.Trial) bool {
	f := r.Cause.Finding
	c, ok := captured(t.Case)
	if !strings.HasPrefix(f.Got, "digest ") || f.Tensor == "" || f.Of != "" || !ok {
		return false
	}
	again := e.PlanOther(s.ID, c)
	if err := e.Run(ctx, again); err != nil {
		return false
	}
	for _, cl := range s.Clauses {
		if cl.ID != r.Cause.Clause {
			continue
		}
		one := *s.Contract
		one.Clauses = []*contract.Clause{cl}
		results, err := judge(ctx, &one, []contract.Evidence{again.Evidence(o.Oracle)})
		if err != nil {
			return false
		}
		for _, g := range results[0].Findings {
			if g.Rank == f.Rank && g.Step == f.Step && g.Tensor == f.Tensor && g.Phase == f.Phase && g.Against == f.Against {
				return replace(r, cl.ID, f, g)
			}
		}
		r.Notes = append(r.Notes, fmt.Sprintf("%s, case %s: made again, the run does not show the first finding: it is not the same every time", cl.ID, t.Name))
	}
	return false
}

// captured is a case all of whose runs record elements; ok is false where that is too
// much, or a run does more than to train.
func captured(c suite.Case) (out suite.Case, ok bool) {
	out = c
	out.Runs = map[contract.Role]suite.Run{}
	for role, run := range c.Runs {
		if run.Config == nil || run.Do != nil || float64(run.Config.Model.Params())*float64(run.Config.Steps) > maxControlElements {
			return c, false
		}
		cfg := *run.Config
		cfg.Recording.Capture = true
		run.Config, run.Key = &cfg, ""
		out.Runs[role] = run
	}
	return out, true
}

// replace gives a finding of a clause the values of another that says the same.
func replace(r *report.Report, clause string, old, with contract.Finding) bool {
	for i := range r.Contracts {
		for j := range r.Contracts[i].Clauses {
			cl := &r.Contracts[i].Clauses[j]
			for k := range cl.Findings {
				f := &cl.Findings[k]
				if cl.ID == clause && f.Case == old.Case && f.Rank == old.Rank && f.Step == old.Step && f.Tensor == old.Tensor && f.Message == old.Message {
					f.Index, f.Got, f.Want, f.Ratio, f.NormRatio, f.Like = with.Index, with.Got, with.Want, with.Ratio, with.NormRatio, with.Like
					return true
				}
			}
		}
	}
	return false
}
