package contracts

import (
	"context"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// alone makes a case of every untagged run of one rank for the clause of a contract
// that compares a run with the same one again: no plan's control is another run.
func (j *judgement) alone(c *suite.Suite) []*recordedCase {
	if !repeats(c) {
		return nil
	}
	var out []*recordedCase
	for _, r := range j.all {
		if r.untagged(true) && r.history.Header.World == 1 {
			out = append(out, &recordedCase{name: named(r), runs: map[contract.Role]*recorded{contract.Test: r}, clauses: []string{c.Again}, alone: true, serves: j.serves(r)})
		}
	}
	return out
}

// repeats reports whether a contract, or what of it was asked for, has the clause that
// compares a run with the same one again.
func repeats(c *suite.Suite) bool {
	return slices.ContainsFunc(c.Clauses, func(cl *contract.Clause) bool { return cl.ID == c.Again })
}

// shownOf is the contract with what its cases are evidence for, where they are runs
// beside themselves.
func shownOf(c *suite.Suite, cases []*recordedCase) *contract.Contract {
	if len(cases) == 0 || slices.ContainsFunc(cases, func(rc *recordedCase) bool { return !rc.alone }) {
		return c.Contract
	}
	return part(c, []string{c.Again}).Contract
}

// again gives cases of a run of one rank the same run again, made here, where none was
// recorded.
func (j *judgement) again(ctx context.Context, c *suite.Suite, cases []*recordedCase, t *recorded) ([]*recordedCase, error) {
	if !repeats(c) || t.history.Header.World != 1 {
		return cases, nil
	}
	var out []*recordedCase
	for _, rc := range cases {
		if rc.runs[contract.Again] == nil {
			second, err := j.second(ctx, t)
			switch {
			case err != nil:
				return nil, err
			case second.run == nil:
				j.note("%s", second.why)
			default:
				rc = rc.beside(contract.Again, second.run, second.doubts...)
			}
		}
		out = append(out, rc)
	}
	return out, nil
}

// second makes a recorded run again.
func (j *judgement) second(ctx context.Context, t *recorded) (made, error) {
	cfg, err := compare.Sized(t.history, *t.config)
	want := suite.Run{Config: &cfg}
	if err == nil {
		want.Do, err = goingOn(t.history, cfg)
	}
	if err != nil {
		return made{why: "no second run for " + t.dir() + ": " + err.Error()}, nil
	}
	return j.make(ctx, want, t.dir())
}
