package contracts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Verify runs the cases of contracts and judges what they recorded. Where runs
// ended in an error, or a clause's check panicked, the report holds what there is,
// and the error joins what went wrong; wrong options are an *OptionError and no
// report. When ctx ends, the cases whose runs were made until then are judged, the
// report names the others, and the error has ctx's cause.
func Verify(ctx context.Context, cs []*suite.Suite, o Options) (*report.Report, error) {
	if err := Validate(cs); err != nil {
		return nil, err
	}
	if err := o.Check(cs); err != nil {
		return nil, err
	}
	return o.verify(ctx, cs)
}

// verify is Verify of contracts and options that were checked.
func (o *Options) verify(ctx context.Context, cs []*suite.Suite) (*report.Report, error) {
	cs, notes, left := o.concerned(cs)
	e := o.engine()
	trials := map[*suite.Suite][]*suite.Trial{}
	var all []*suite.Trial
	for _, c := range cs {
		for _, one := range o.Cases(c) {
			trials[c] = append(trials[c], e.Plan(c.ID, one))
		}
		all = append(all, trials[c]...)
		notes = append(append(notes, o.unheeded(c, trials[c])...), o.less(c)...)
	}
	errs := []error{e.Run(ctx, all...)}
	if errs[0] != nil {
		notes = append([]string{unfinished(errs[0], all)}, notes...)
	}
	notes = append(notes, o.idle(all)...)
	if o.Histories != "" {
		for _, t := range all {
			if err := t.Save(o.Histories); err != nil {
				return nil, err
			}
		}
	}
	judging, stop := afterwards(ctx)
	defer stop()
	var out []report.Contract
	var clock suite.Clock
	for _, c := range cs {
		begun := time.Now()
		sum, err := o.judge(judging, c, trials[c])
		if sum.ID == "" { // there was no time for it
			sum = notJudged(o.shown(c), err)
		}
		sum.Seconds = (time.Since(begun) + clock.Took(trials[c]...)).Seconds()
		out, errs = append(out, sum), append(errs, err)
	}
	r := report.New(o.environment(all), out)
	r.LeaveOut(left...)
	r.Notes = notes
	o.explain(ctx, e, r, cs, trials)
	return r, errors.Join(append(errs, suite.Errors(all...))...)
}

// lastWords is how long what was run is judged once the context has ended.
const lastWords = 20 * time.Second

// afterwards is a context for judging what was run until then: it ends a while after
// ctx does.
func afterwards(ctx context.Context) (context.Context, func()) {
	judging, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(lastWords, func() { cancel(context.Cause(ctx)) })
	})
	return judging, func() {
		stop()
		cancel(nil)
	}
}

// unfinished says how much of a verification was done when its context ended.
func unfinished(cause error, all []*suite.Trial) string {
	made := 0
	for _, t := range all {
		if len(t.Unfinished()) == 0 {
			made++
		}
	}
	return fmt.Sprintf("%v: %d of %d cases were run and judged, the others are named as not run", cause, made, len(all))
}

// judge applies a contract to its cases, which were run.
func (o *Options) judge(ctx context.Context, c *suite.Suite, trials []*suite.Trial) (report.Contract, error) {
	var evidence []contract.Evidence
	var failures []string
	lines := map[string]string{}
	for _, t := range trials {
		if missing := t.Unfinished(); len(missing) > 0 {
			failures = append(failures, missing...)
			continue
		}
		evidence = append(evidence, t.Evidence(o.Oracle))
		failures = append(failures, t.Failures()...)
		lines[t.Name] = o.Reproduce(c, t.Case)
	}
	return summarise(ctx, o.shown(c), evidence, failures, lines)
}

// summarise judges one contract. doubts apply to all its clauses, before their own; lines are the
// commands that reproduce a case, for findings that name none.
func summarise(ctx context.Context, c *contract.Contract, evidence []contract.Evidence, doubts []string, lines map[string]string) (report.Contract, error) {
	results, err := judge(ctx, c, evidence)
	if results == nil && err != nil {
		return report.Contract{}, err
	}
	for i := range results {
		// That a run failed comes before what it lacks for that.
		results[i].Doubts = slices.Concat(doubts, results[i].Doubts)
		for j := range results[i].Findings {
			f := &results[i].Findings[j]
			if f.Reproduce == "" {
				f.Reproduce = lines[f.Case]
			}
		}
	}
	return report.Summary(c, results), err
}

// judge is contract.Judge, with the panics of checks, whose clauses are inconclusive,
// as an error too: histories may come from files.
func judge(ctx context.Context, c *contract.Contract, evidence []contract.Evidence) ([]contract.Result, error) {
	results, err := contract.Judge(ctx, c, evidence)
	errs := []error{err}
	for _, r := range results {
		for _, err := range r.Panics {
			errs = append(errs, fmt.Errorf("judging %s: %w", c.ID, err))
		}
	}
	return results, errors.Join(errs...)
}

// environment completes what the caller said with what the cases say.
func (o *Options) environment(all []*suite.Trial) report.Environment {
	e := o.Environment
	e.Text, e.TextHash, e.Depth, e.Seed = o.Text.Name, o.Text.Hash(), o.Level, o.Seed
	for _, t := range all {
		for _, role := range t.Roles() {
			if cfg := t.Runs[role].Config; cfg != nil && role != contract.Control {
				addConfig(&e, *cfg)
			}
		}
	}
	slices.SortFunc(e.Plans, strings.Compare)
	return e
}

func addConfig(e *report.Environment, cfg spec.Config) {
	if s := cfg.Model.Name + ":" + given(cfg).String(); !slices.Contains(e.Plans, s) {
		e.Plans = append(e.Plans, s)
	}
	e.Seed = cmp.Or(e.Seed, cfg.Seed)
	if e.LastStep == "" && cfg.Validate() == nil {
		e.LastStep = string(cfg.LastStep)
	}
}

// given is a configuration's plan without the default number of micro-batches,
// which validation writes out.
func given(cfg spec.Config) plan.Plan {
	p := cfg.Plan
	p.MicroBatches = 0
	filled := p
	if filled.Validate(cfg.Model, cfg.Sequences) == nil && filled.MicroBatches == cfg.Plan.MicroBatches {
		return p
	}
	return cfg.Plan
}
