package contracts

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// goingOn makes the control of a run that goes on from a checkpoint: it goes on from
// the same state, which the run recorded, whatever plan had made it. It is nil where
// the run began with its seed.
func goingOn(h *trace.History, cfg spec.Config) (func(context.Context, suite.Env) (*trace.History, error), error) {
	from, err := compare.LoadedBy(h)
	if err != nil || from == nil {
		return nil, err
	}
	return func(ctx context.Context, env suite.Env) (_ *trace.History, err error) {
		root, err := os.MkdirTemp("", "lockstep-state-")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
		if err := store(root, from, cfg); err != nil {
			return nil, fmt.Errorf("the state that the run goes on from: %w", err)
		}
		c, err := checkpoint.Open(root)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		env.Parts.Checkpoints.Resume = c
		return env.Train(ctx, cfg)
	}, nil
}

// store makes a checkpoint of a state.
func store(root string, from *compare.Loaded, cfg spec.Config) error {
	var state []checkpoint.Tensor
	for _, t := range from.State {
		state = append(state, checkpoint.Tensor(t))
	}
	return checkpoint.Whole(root, checkpoint.Manifest{Schema: checkpoint.Schema, Arithmetic: kernels.Arithmetic, Step: from.First, Counter: from.Taken, Spec: cfg.Spec()}, state)
}
