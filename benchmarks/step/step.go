// Package step times training one optimizer step at a time, so that the steps of
// several trainings, and of other programs, can be taken in turn: on a machine
// that is not alone, only neighbours in time can be compared.
package step

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Training is a run of one process that waits after every step.
type Training struct {
	cancel context.CancelFunc
	next   chan struct{}
	done   chan train.Progress
	end    chan struct{} // closed when the run is over
	err    error         // why it ended; read after end
	last   train.Progress
}

// Config is a named configuration on one rank that records nothing and clips
// nothing, with the given canonical groups and sequences of a step.
func Config(name string, groups model.Groups, sequences int) (spec.Config, error) {
	c, err := spec.Preset(name)
	if err != nil {
		return c, err
	}
	c.Model.Groups, c.Sequences, c.Blank, c.Optimizer.Clip = groups, sequences, nil, 0
	return c, c.Validate()
}

// Start builds the run of a configuration on the built-in text and takes its
// first step, which also touches all memory. Steps of the configuration do not
// count: it goes on until Close. What it records is kept where the
// configuration asks for evidence.
func Start(c spec.Config, b kernels.Backend) (*Training, error) {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Training{cancel: cancel, next: make(chan struct{}), done: make(chan train.Progress), end: make(chan struct{})}
	c.Steps = spec.MaxSteps
	parts := launch.Parts{
		Backend: func(int) (kernels.Backend, error) { return b, nil },
	}
	parts.Progress = func(p train.Progress) {
		select {
		case t.done <- p:
		case <-ctx.Done():
		}
		select {
		case <-t.next:
		case <-ctx.Done():
		}
	}
	if c.Recording == (spec.Recording{}) {
		parts.Keep = func(trace.Event) bool { return false }
	}
	go func() {
		defer close(t.end)
		_, t.err = launch.Local(ctx, c, data.Default(), parts)
	}()
	if err := t.wait(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Training) wait() error {
	select {
	case t.last = <-t.done:
		return nil
	case <-t.end:
		return fmt.Errorf("the run ended: %w", t.err)
	}
}

// Step takes one step and says how long it took, by the clock and in processor
// time of the process. The error is why the run ended.
func (t *Training) Step() (clock, used time.Duration, err error) {
	start, before := time.Now(), Used()
	select {
	case t.next <- struct{}{}:
	case <-t.end:
	}
	err = t.wait()
	return time.Since(start), Used() - before, err
}

// Last is what the run told of its last step.
func (t *Training) Last() train.Progress { return t.last }

// Close ends the run and waits until its memory is free.
func (t *Training) Close() {
	t.cancel()
	<-t.end
}
