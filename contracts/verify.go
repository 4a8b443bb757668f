package contracts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	var q queue
	var all []*planned
	for _, c := range cs {
		for _, one := range o.Cases(c) {
			all = append(all, q.plan(c, one))
		}
	}
	if err := o.execute(ctx, q.jobs); err != nil {
		return nil, err
	}
	if o.Histories != "" {
		for _, p := range all {
			if err := p.save(o.Histories); err != nil {
				return nil, err
			}
		}
	}
	r, err := o.judge(cs, all, &q)
	if r != nil {
		r.Notes = append(notes, r.Notes...)
	}
	return r, err
}

// judge applies the contracts to the cases that were run.
func (o *Options) judge(cs []*suite.Suite, all []*planned, q *queue) (*report.Report, error) {
	var out []report.Contract
	for _, c := range cs {
		var evidence []contract.Evidence
		var failures []string
		lines := map[string]string{}
		for _, p := range all {
			if p.contract == c {
				evidence = append(evidence, p.evidence(o.Oracle))
				failures = append(failures, p.failures()...)
				lines[p.cs.Name] = o.Reproduce(c, p.cs)
			}
		}
		sum, err := summarise(o.shown(c), evidence, failures, lines)
		if err != nil {
			return nil, err
		}
		out = append(out, sum)
	}
	r := report.New(o.environment(all), out)
	var errs []error
	for _, j := range q.jobs {
		if j.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", j.label, j.err))
		}
	}
	return r, errors.Join(errs...)
}

// summarise judges one contract. doubts apply to all its clauses; lines are the
// commands that reproduce a case, for findings that name none.
func summarise(c *contract.Contract, evidence []contract.Evidence, doubts []string, lines map[string]string) (report.Contract, error) {
	results, err := judge(c, evidence)
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
func judge(c *contract.Contract, evidence []contract.Evidence) (r []contract.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("judging %s: panic: %v", c.ID, p)
		}
	}()
	return contract.Judge(c, evidence), nil
}

// environment completes what the caller said with what the cases say.
func (o *Options) environment(all []*planned) report.Environment {
	e := o.Environment
	e.Text, e.TextHash = o.Text.Name, o.Text.Hash()
	for _, p := range all {
		cfg := p.cs.Runs[contract.Test].Config
		if cfg != nil {
			addConfig(&e, *cfg)
		}
	}
	slices.SortFunc(e.Plans, strings.Compare)
	return e
}

func addConfig(e *report.Environment, cfg spec.Config) {
	if s := cfg.Model.Name + ":" + given(cfg).String(); !slices.Contains(e.Plans, s) {
		e.Plans = append(e.Plans, s)
	}
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
