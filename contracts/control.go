package contracts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// A control is run here only for models that a single machine trains in
// passing; for others the directory must hold one.
const maxControlParams = 1 << 26

// complete gives a training case the runs that it can be compared with: the
// control, and, from the directories only, the same run again and with another
// seed. The result is one case or several: a run that is there twice is not chosen
// from, for then another recorded run could take the place of one that shows a
// violation.
func (j *judgement) complete(ctx context.Context, c *suite.Suite, rc *recordedCase) ([]*recordedCase, error) {
	t := rc.runs[contract.Test]
	if t == nil || t.config == nil {
		return []*recordedCase{rc}, nil
	}
	if rc.alone {
		return j.again(ctx, c, []*recordedCase{rc}, t)
	}
	want, of := suite.Run{}, ""
	cs, ok := suite.Case{}, false
	if t.contract == c.ID {
		cs, ok = j.caseOf(c, t)
	}
	if ok {
		run, needed := cs.Runs[contract.Control]
		if !needed {
			return []*recordedCase{rc}, nil
		}
		if recordedAs(cs.Runs[contract.Test], t) && run.Config != nil {
			cfg := *run.Config
			cfg.TextHash = t.config.TextHash
			run.Config = &cfg
			want, of = run, c.ID+"/"+cs.Name
		}
	}
	var unlike error // why no control of the run's size can be made
	if want.Config == nil {
		sized, err := compare.Sized(t.history, *t.config)
		cfg := controlOf(c, sized)
		if want, unlike = (suite.Run{Config: &cfg}), err; err == nil {
			want.Do, unlike = goingOn(t.history, cfg)
			of = t.dir()
		}
	}
	compared, err := j.controls(ctx, c, rc, want, of, unlike)
	if err != nil || t.contract == c.ID {
		return compared, err
	}
	return j.again(ctx, c, j.repeated(c, compared, t), t)
}

// controls is a case beside its control: the one that is made here, and every
// recorded one that differs from it; where none can be made, as where unlike says
// why, every recorded one, with a doubt unless golden has its bits.
func (j *judgement) controls(ctx context.Context, c *suite.Suite, rc *recordedCase, want suite.Run, of string, unlike error) ([]*recordedCase, error) {
	own := made{why: fmt.Sprintf("no control for %s: %v", want.Config.Model.Name, unlike)}
	if unlike == nil {
		var err error
		if own, err = j.make(ctx, want, of); err != nil {
			return nil, err
		}
	}
	all := j.recorded(rc, *want.Config)
	var out []*recordedCase
	if own.run != nil {
		out = append(out, rc.beside(contract.Control, own.run, own.doubts...))
		for _, r := range all {
			r.used = true
			if d := differ(r.history, own.run.history); d != "" {
				out = append(out, rc.againstRecorded(r, fmt.Sprintf("%s: is not the control made here: %s", r.dir(), d)))
			}
		}
		return out, nil
	}
	for i, r := range all {
		r.used = true
		if i > 0 && differ(r.history, all[0].history) == "" && !lacks(c, all[0], *want.Config) {
			continue
		}
		doubts := believed(r)
		if doubts != nil {
			j.note("%s", own.why)
		}
		out = append(out, rc.againstRecorded(r, doubts...))
	}
	if len(out) == 0 {
		j.note("%s", own.why)
		out = append(out, rc)
	}
	return out, nil
}

// againstRecorded is the case beside a recorded control.
func (rc *recordedCase) againstRecorded(r *recorded, doubts ...string) *recordedCase {
	out := rc.beside(contract.Control, r, doubts...)
	out.in = strings.TrimPrefix(rc.in+", beside "+r.dir(), ", ")
	return out
}

// lacks reports whether a recorded control has not all that a contract reads.
func lacks(c *suite.Suite, r *recorded, want spec.Config) bool {
	return !records(r.config.Recording, want.Recording) || c.Elements && !r.config.Recording.Capture && want.Recording.Capture
}

// repeated adds the same run again, and with another seed, where clauses read
// them: every one that is recorded.
func (j *judgement) repeated(c *suite.Suite, cases []*recordedCase, t *recorded) []*recordedCase {
	unseeded := func(c spec.Config) string { c.Seed = 0; return runSpec(c) }
	reads := map[contract.Role]bool{}
	for _, role := range readBy(c) {
		reads[role] = true
	}
	found := map[contract.Role][]*recorded{}
	for _, r := range j.all {
		if r == t || !r.untagged(true) || unseeded(*r.config) != unseeded(*t.config) {
			continue
		}
		role := contract.Other
		if r.config.Seed == t.config.Seed {
			role = contract.Again
		}
		if reads[role] {
			found[role] = append(found[role], r)
		}
	}
	var out []*recordedCase
	for i := range max(1, len(found[contract.Again]), len(found[contract.Other])) {
		for _, rc := range cases {
			for role, all := range found {
				rc = rc.beside(role, all[min(i, len(all)-1)])
			}
			if i > 0 {
				rc.in = strings.TrimPrefix(fmt.Sprintf("%s, beside repetition %d", rc.in, i), ", ")
			}
			out = append(out, rc)
		}
	}
	return out
}

// runSpec is the specification without what it records.
func runSpec(c spec.Config) string {
	c.Recording = spec.Recording{}
	return string(c.Spec())
}

// problemSpec is the specification without how it is computed: equal for a run and
// its control.
func problemSpec(c spec.Config) string {
	c.Plan, c.Backend = plan.Plan{}, ""
	return runSpec(c)
}

// controlOf is what the contract judges a recorded run against. Elements are
// recorded only where they are few.
func controlOf(c *suite.Suite, cfg spec.Config) spec.Config {
	of := compare.Single
	if c.Control != nil {
		of = c.Control
	}
	want := of(cfg)
	e := &want.Recording
	e.Digests, e.Workers, e.KeepGoing = true, true, true
	e.Capture = e.Capture && float64(want.Model.Params())*float64(want.Steps) <= maxControlElements
	return want
}

// maxControlElements bounds parameters times steps of controls that are made in
// passing with their elements: four of each parameter's are kept in memory.
const maxControlElements = 1 << 24

// records reports whether evidence holds what is needed: elements say more about
// a finding, and only the clauses of some contracts need those of a control.
func records(e, need spec.Recording) bool {
	return e.Digests && e.Workers && (e.Taps || !need.Taps)
}

// recorded finds the controls of a case in the directories: its own, and every
// untagged run of the control's task and plan, those first that record all that is
// needed.
func (j *judgement) recorded(rc *recordedCase, want spec.Config) []*recorded {
	want.Steps = rc.runs[contract.Test].config.Steps // whatever is recorded of them
	var all []*recorded
	if own := rc.runs[contract.Control]; own != nil && own.config != nil {
		all = append(all, own)
	}
	for _, r := range j.all {
		if r != rc.runs[contract.Test] && r.untagged(true) && problemSpec(*r.config) == problemSpec(want) && samePlan(*r.config, want) {
			all = append(all, r)
		}
	}
	full, less := split(all, func(r *recorded) bool { return records(r.config.Recording, want.Recording) })
	return append(full, less...)
}

// samePlan reports whether a run was computed as the control that is wanted. The
// cut into micro-batches decides activations only; on one rank nothing else
// about a plan decides anything.
func samePlan(c, want spec.Config) bool {
	if c.Validate() != nil || want.Validate() != nil {
		return false
	}
	a, b := c.Plan, want.Plan
	if !want.Recording.Taps {
		a.MicroBatches, b.MicroBatches = 0, 0
	}
	if a.World() == 1 && b.World() == 1 {
		return a.MicroBatches == b.MicroBatches
	}
	return a == b
}

// made is a control that was made here.
type made struct {
	run    *recorded // nil where it could not be
	why    string    // it could not
	doubts []string  // of its bits
}

// make runs a control, once per specification and, where a case does more to it
// than train it, per case. The error is only ctx's.
func (j *judgement) make(ctx context.Context, want suite.Run, of string) (made, error) {
	cfg := *want.Config
	cfg.Backend = j.o.Backend
	key := string(cfg.Spec())
	if plain := want.Parts == nil && want.Do == nil; !plain {
		key += " of " + of
	}
	if m, done := j.made[key]; done {
		return m, nil
	}
	want.Key, want.Config = "", &cfg // what is made here is kept here
	h, err := j.run(ctx, want)
	if ctx.Err() != nil {
		return made{}, context.Cause(ctx)
	}
	var m made
	if err != nil {
		m.why, _, _ = strings.Cut(err.Error(), "\n")
		m.why = fmt.Sprintf("no control %s for %s: %s", cfg.Plan, cfg.Model.Name, m.why)
	} else {
		m.run = &recorded{history: h, config: &cfg, used: true}
		j.mark(h)
		if want.Parts == nil {
			if _, err := goldens(h, cfg); err != nil {
				m.doubts = []string{fmt.Sprintf("the control made here: %v", err)}
			}
		}
	}
	j.made[key] = m
	return m, nil
}

func (j *judgement) run(ctx context.Context, want suite.Run) (*trace.History, error) {
	cfg := *want.Config // Validate fills it in
	if cfg.Model.Params() > maxControlParams {
		return nil, errors.New("the model is too large to train here in passing; record a run of one rank into the directory")
	}
	text, err := j.o.text(cfg.Text)
	if err != nil {
		return nil, err
	}
	if text.Hash() != cmp.Or(cfg.TextHash, text.Hash()) {
		return nil, fmt.Errorf("text %s has SHA-256 %.12s, the run was made with %.12s", cfg.Text, text.Hash(), cfg.TextHash)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return j.engine.Make(ctx, want)
}
