package contracts

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Judged is a training run as all contracts see it.
type Judged struct {
	// Results are those of every clause of the contracts that are about the plan, in
	// their order.
	Results []contract.Result
	History *trace.History // after an error, what was recorded up to it
	Err     error          // what ended the run early
}

// Violated lists the results of the clauses that are violated.
func (j *Judged) Violated() []contract.Result { return j.with(contract.Violated) }

// Held lists the results of the clauses that are held.
func (j *Judged) Held() []contract.Result { return j.with(contract.Held) }

func (j *Judged) with(v contract.Verdict) []contract.Result {
	var out []contract.Result
	for _, r := range j.Results {
		if r.Verdict() == v {
			out = append(out, r)
		}
	}
	return out
}

// JudgeRun trains cfg on o's text, of parts that change changes (nil for as they
// are), and judges it by all contracts that are about its plan, each beside the
// control that it wants, which nothing changes; a run of one rank, which has no other
// control, also beside itself. The error is of the controls.
func JudgeRun(ctx context.Context, cfg spec.Config, change func(*launch.Parts), o Options) (*Judged, error) {
	if err := o.Check(nil); err != nil {
		return nil, err
	}
	cfg.Text = o.Text.Name
	e := o.engine()
	b := &beside{o: &o, engine: e, judges: All()}
	test := e.PlanOther("", suite.Case{Name: suite.Name(cfg), Runs: map[contract.Role]suite.Run{contract.Test: {Config: &cfg, Parts: change}}})
	trials, controls := []*suite.Trial{test}, []*suite.Trial(nil)
	pairs := map[*suite.Suite]pair{}
	second := map[*suite.Suite]*suite.Trial{}
	for _, x := range b.judges {
		switch {
		case whole(x) && (x.Judges == nil || x.Judges(cfg.Plan)):
			c := e.PlanOther(x.ID, suite.Case{Name: test.Name, Runs: map[contract.Role]suite.Run{contract.Control: suite.Train(controlOf(x, cfg), o.Options)}})
			pairs[x], controls = pair{test: test, control: c}, append(controls, c)
		case cfg.Plan.World() == 1 && repeats(x):
			second[x] = e.PlanOther(x.ID, suite.Case{Name: test.Name, Runs: map[contract.Role]suite.Run{contract.Again: suite.Train(cfg, o.Options)}})
			controls = append(controls, second[x])
		}
	}
	if err := e.Run(ctx, append(trials, controls...)...); err != nil {
		return nil, err
	}
	if err := suite.Errors(controls...); err != nil {
		return nil, err
	}
	out := &Judged{History: test.History(contract.Test), Err: test.Err(contract.Test)}
	for _, x := range b.judges {
		var seen contract.Evidence
		of := x.Contract
		if p, ok := pairs[x]; ok {
			seen = p.evidence(o.Oracle)
		} else if again := second[x]; again != nil {
			of, seen = part(x, []string{x.Again}).Contract, test.Evidence(o.Oracle)
			if h := again.History(contract.Again); h != nil {
				seen.Histories[contract.Again] = h
			}
		} else {
			continue
		}
		results, err := judge(ctx, of, []contract.Evidence{seen})
		if err != nil {
			return nil, err
		}
		out.Results = append(out.Results, results...)
	}
	return out, nil
}

// SameHistory reports whether two runs of one plan recorded the same: the same
// events of each rank, kind and communicator, in the same order.
func SameHistory(a, b *trace.History) bool { return sameHistory(a, b) }
