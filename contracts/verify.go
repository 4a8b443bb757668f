package contracts

import (
	"cmp"
	"context"
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
// ended in an error the report holds what the histories up to it show, and the
// error joins the runs' errors; wrong options are an *OptionError and no report.
func Verify(ctx context.Context, cs []*suite.Suite, o Options) (*report.Report, error) {
	if err := Validate(cs); err != nil {
		return nil, err
	}
	if err := o.Check(cs); err != nil {
		return nil, err
	}
	cs, notes := o.concerned(cs)
	e := o.engine()
	trials := map[*suite.Suite][]*suite.Trial{}
	var all []*suite.Trial
	for _, c := range cs {
		for _, one := range o.Cases(c) {
			trials[c] = append(trials[c], e.Plan(c.ID, one))
		}
		all = append(all, trials[c]...)
		notes = append(notes, o.unheeded(c, trials[c])...)
	}
	if err := e.Run(ctx, all...); err != nil {
		return nil, err
	}
	if o.Histories != "" {
		for _, t := range all {
			if err := t.Save(o.Histories); err != nil {
				return nil, err
			}
		}
	}
	var out []report.Contract
	var clock suite.Clock
	for _, c := range cs {
		begun := time.Now()
		sum, err := o.judge(ctx, c, trials[c])
		if err != nil {
			return nil, err
		}
		sum.Seconds = (time.Since(begun) + clock.Took(trials[c]...)).Seconds()
		out = append(out, sum)
	}
	r := report.New(o.environment(all), out)
	r.Notes = notes
	return r, suite.Errors(all...)
}

// judge applies a contract to its cases, which were run.
func (o *Options) judge(ctx context.Context, c *suite.Suite, trials []*suite.Trial) (report.Contract, error) {
	var evidence []contract.Evidence
	var failures []string
	lines := map[string]string{}
	for _, t := range trials {
		evidence = append(evidence, t.Evidence(o.Oracle))
		failures = append(failures, t.Failures()...)
		lines[t.Name] = o.Reproduce(c, t.Case)
	}
	return summarise(ctx, o.shown(c), evidence, failures, lines)
}

// summarise judges one contract. doubts apply to all its clauses; lines are the
// commands that reproduce a case, for findings that name none.
func summarise(ctx context.Context, c *contract.Contract, evidence []contract.Evidence, doubts []string, lines map[string]string) (report.Contract, error) {
	results, err := judge(ctx, c, evidence)
	if err != nil {
		return report.Contract{}, err
	}
	for i := range results {
		results[i].Doubts = append(results[i].Doubts, doubts...)
		for j := range results[i].Findings {
			f := &results[i].Findings[j]
			if f.Reproduce == "" {
				f.Reproduce = lines[f.Case]
			}
		}
	}
	return report.Summary(c, results), nil
}

// judge is contract.Judge, with a clause that panics turned into an error:
// histories may come from files.
func judge(ctx context.Context, c *contract.Contract, evidence []contract.Evidence) (r []contract.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("judging %s: panic: %v", c.ID, p)
		}
	}()
	return contract.Judge(ctx, c, evidence)
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
