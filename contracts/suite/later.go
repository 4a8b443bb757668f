package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Later is a place in a training at which a run begins, as a training that was
// interrupted there does: it goes on from a checkpoint. Its zero value is the
// beginning.
type Later struct {
	Step  int // the first step of the run
	Taken int // optimizer steps taken by then: fewer than steps, where some were skipped
}

// Suffix ends the names of cases that begin there.
func (l Later) Suffix() string { return fmt.Sprintf(" from step %d", l.Step) }

// Until makes a run begin there and take so many steps.
func (l Later) Until(cfg *spec.Config, steps int) { cfg.Steps = min(l.Step+steps, spec.MaxSteps) }

// before is how many steps make the state that a run begins with, from the seed.
const before = 2

// state makes a state of the configuration that is not its initial one, as if it were
// that of the place: a few steps of the single worker, at the full learning rate, make
// weights and moments of which none is what it began with. The process that has the
// worker calls left.
func (l Later) state(ctx context.Context, env Env, cfg spec.Config) (left func() (*compare.Loaded, error), err error) {
	env.Parts.Checkpoints = train.Checkpoints{} // those are the run's own
	short := compare.Single(cfg)
	short.Steps, short.Recording = before, spec.Recording{Digests: true, Capture: true}
	short.Optimizer.Warmup, short.Optimizer.Horizon = 0, 0
	h, err := env.Train(ctx, short)
	if err != nil {
		return nil, fmt.Errorf("the state of step %d: %w", l.Step, err)
	}
	return func() (*compare.Loaded, error) {
		out, err := compare.LeftBy(h)
		if err != nil {
			return nil, fmt.Errorf("the state of step %d: %w", l.Step, err)
		}
		out.First, out.Taken = l.Step, l.Taken
		return out, nil
	}, nil
}

// Train makes the history of a run that begins there.
func (l Later) Train(ctx context.Context, env Env, cfg spec.Config) (*trace.History, error) {
	if l == (Later{}) {
		return env.Train(ctx, cfg)
	}
	left, err := l.state(ctx, env, cfg)
	if err != nil {
		return nil, err
	}
	return env.goOn(ctx, cfg, left)
}

// Run is Train as the run of a case.
func (l Later) Run(cfg spec.Config, o Options) Run {
	r := Train(cfg, o)
	if l != (Later{}) {
		r.Key += l.Suffix()
		r.First = l.Step
		r.Do = func(ctx context.Context, env Env) (*trace.History, error) { return l.Train(ctx, env, cfg) }
	}
	return r
}

// GoOn makes the history of a run that goes on from a state, which is stored for it as
// a checkpoint.
func (e Env) GoOn(ctx context.Context, cfg spec.Config, from *compare.Loaded) (*trace.History, error) {
	return e.goOn(ctx, cfg, func() (*compare.Loaded, error) { return from, nil })
}

// goOn is GoOn from a state that one process can give.
func (e Env) goOn(ctx context.Context, cfg spec.Config, from func() (*compare.Loaded, error)) (h *trace.History, err error) {
	root, release, err := e.Dir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	text, err := e.Text(cfg.Text)
	if err != nil {
		return nil, err
	}
	cfg.TextHash = text.Hash()
	err = e.Once(ctx, func() error {
		state, err := from()
		if err != nil {
			return err
		}
		return Store(root, state, cfg)
	})
	if err != nil {
		return nil, fmt.Errorf("the state that the run goes on from: %w", err)
	}
	return e.Resume(ctx, cfg, root)
}

// Store makes a checkpoint of a state below root.
func Store(root string, from *compare.Loaded, cfg spec.Config) error {
	var state []checkpoint.Tensor
	for _, t := range from.State {
		state = append(state, checkpoint.Tensor(t))
	}
	return checkpoint.Whole(root, checkpoint.Manifest{Schema: checkpoint.Schema, Arithmetic: kernels.Arithmetic, Step: from.First, Counter: from.Taken, Spec: cfg.Spec()}, state)
}

// Resume makes the history of a run that goes on from the checkpoint in dir.
func (e Env) Resume(ctx context.Context, cfg spec.Config, dir string) (*trace.History, error) {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	e.Parts.Checkpoints.Resume = c
	return e.Train(ctx, cfg)
}
