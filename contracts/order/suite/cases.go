package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/interleave"
	"github.com/lockstep-ml/lockstep/contracts/order"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// fixtures are the default cases of a level: reductions beside the backward pass,
// gathers ahead of both passes, state that its owner publishes, both kinds of
// schedules between stages, groups within a step.
func fixtures(level int) []suite.Fixture {
	few := []suite.Fixture{
		{Config: "nano", Steps: 2, Plans: []string{"dp=4", "dp=2,zero=3", "dp=2,zero=2", "pp=2,schedule=interleaved,virtual=2"}, Change: short},
		{Config: "odd", Steps: 2, Plans: []string{"dp=2,zero=1,shard=balanced", "dp=3,zero=3,shard=tensors", "pp=3", "tp=2,dp=2,vocab=parallel", "dp=3,comm=ring"}, Change: short},
	}
	if level <= 1 {
		return few
	}
	return append(few,
		suite.Fixture{Config: "nano", Steps: 4, Plans: []string{"dp=8", "dp=4,zero=1", "dp=4,zero=3", "dp=4,zero=3,microbatches=4", "dp=2,tp=2,pp=2", "dp=2,tp=2,pp=2,zero=3",
			"dp=2,pp=2,schedule=interleaved,virtual=2,zero=3", "dp=3,comm=star", "dp=4,pp=2,comm=ring"}},
		suite.Fixture{Config: "odd", Steps: 4, Plans: []string{"dp=4", "dp=2,tp=4", "dp=4,zero=2,tp=2", "dp=2,pp=3", "pp=4,schedule=gpipe,microbatches=12", "dp=2,pp=2,zero=3,shard=tensors"}})
}

// short makes sequences so short that a run is about who comes first, not about
// arithmetic.
func short(c *spec.Config) {
	c.Model.SeqLen, c.Recording.Workers = 5, false
	c.Sequences = min(c.Sequences, 8)
}

// seeds are those of a level.
func seeds(level int) int {
	switch {
	case level <= 1:
		return 1
	case level == 2:
		return 8
	}
	return 32
}

// list makes the cases of options.
func list(o suite.Options) []suite.Case {
	// Named one by one: a recorded run and its control are evidence for none.
	clauses := []string{"C-ORDER-001.1", "C-ORDER-001.2", "C-ORDER-001.3"}
	g := suite.Grid{Fixtures: fixtures, Named: named, Runs: runs, Clauses: clauses}
	return g.Cases(o)
}

func named(config string, _ int) suite.Fixture {
	return suite.Fixture{Config: config, Steps: 2, Plans: []string{"dp=2", "dp=2,zero=3"}}
}

// runs are one run by every schedule, and one that nobody schedules.
func runs(o suite.Options, _ suite.Fixture, on ...spec.Config) map[contract.Role]suite.Run {
	out := map[contract.Role]suite.Run{
		contract.Control: suite.Train(on[0], o),
		contract.Test:    by(on[0], o, interleave.Schedule{Policy: interleave.Random, Seed: 1}),
	}
	for seed := 2; seed <= seeds(o.Level); seed++ {
		s := interleave.Schedule{Policy: interleave.Random, Seed: uint64(seed)}
		out[contract.Role(s.String())] = by(on[0], o, s)
	}
	for _, role := range order.Schedules() {
		out[role] = by(on[0], o, interleave.Schedule{Policy: interleave.Policy(role)})
	}
	return out
}

// by is a run that goes by a schedule.
func by(cfg spec.Config, o suite.Options, s interleave.Schedule) suite.Run {
	r := suite.Train(cfg, o)
	r.Key += " by " + s.String()
	r.Parts = func(p *launch.Parts) { interleave.Attach(p, s) }
	r.Do = func(ctx context.Context, env suite.Env) (*trace.History, error) {
		scheduler, ok := env.Parts.Turns.(*interleave.Scheduler)
		if !ok {
			return nil, fmt.Errorf("nothing schedules the run by %s", s)
		}
		h, err := env.Train(ctx, cfg)
		if h != nil {
			if failed := (*launch.Failure)(nil); errors.As(err, &failed) {
				scheduler.Failed(failed.Rank, failed.Err)
			}
			scheduler.Note(h)
		}
		return h, err
	}
	return r
}
