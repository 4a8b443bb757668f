package contracts

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// goingOn makes the control of a run that goes on from a checkpoint: it goes on from
// the same state, which the run recorded, whatever plan had made it. It is nil where
// the run began with its seed.
func goingOn(h *trace.History, cfg spec.Config) (func(context.Context, suite.Env) (*trace.History, error), error) {
	from, err := compare.LoadedBy(h)
	if err != nil || from == nil {
		return nil, err
	}
	return func(ctx context.Context, env suite.Env) (*trace.History, error) { return env.GoOn(ctx, cfg, from) }, nil
}
