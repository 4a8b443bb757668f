package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/train"
)

// checkpoints opens what the run goes on from, and says so; it refuses to store
// where another run did. A checkpoint that is damaged, of a run that computes
// something else, or beside one of another run is a usage error.
func (o *options) checkpoints(ctx context.Context, c spec.Config, stderr io.Writer) (ck train.Checkpoints, err error) {
	ck.Dir, ck.Every = o.save, o.saveEvery
	if o.resume != "" {
		if ck.Resume, err = o.taken(ctx, c, stderr); err != nil {
			return ck, err
		}
	}
	if o.save != "" {
		if err = train.Savable(o.save, ck.Resume); err != nil {
			if ck.Resume != nil {
				ck.Resume.Close()
			}
			return train.Checkpoints{}, cli.AsUsage(fmt.Errorf("save: %w", err))
		}
	}
	return ck, nil
}

// taken is the checkpoint that --resume leads to.
func (o *options) taken(ctx context.Context, c spec.Config, stderr io.Writer) (*checkpoint.Checkpoint, error) {
	// Every file is hashed, which may take long.
	ck, err := files.Await(ctx, func() (*checkpoint.Checkpoint, error) { return checkpoint.Open(o.resume) })
	if ctx.Err() != nil {
		return nil, cli.Why(ctx, err)
	}
	if err != nil {
		return nil, cli.AsUsage(err)
	}
	if err := o.devices.Real(ck.Manifest.Simulated, ck.Dir); err != nil {
		ck.Close()
		return nil, err
	}
	passed, err := train.PassedOver(o.resume, ck)
	if err == nil {
		err = train.Resumable(ck, c)
	}
	if err != nil {
		ck.Close()
		return nil, cli.AsUsage(err)
	}
	if len(passed) > 0 { // which one is taken the header says
		line := fmt.Sprintf("train: goes on from %s, after step %d; passed over %s", ck.Dir, ck.Manifest.Step, strings.Join(passed, ", "))
		fmt.Fprintln(stderr, names.Printable(line))
	}
	return ck, nil
}
