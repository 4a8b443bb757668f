package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// notDry are the flags that a dry run has no use for.
func notDry() []string {
	return append(cli.NetworkFlags(), "history", "fingerprint", "data", "save", "save-every", "resume", "backend", "devices", "require-device", "log", "quiet", "deadline", "seed", "steps",
		"lr", "min-lr", "warmup", "horizon", "clip", "transport", "launch", "agents", "expect-agents")
}

// check refuses flags that are wrong by themselves or have no meaning together.
func (o *options) check(flags *pflag.FlagSet) error {
	if o.format != "text" && o.format != "json" {
		return cli.Usagef("format %q: known are text, json", o.format)
	}
	for _, name := range []string{"history", "save", "resume", "log", "data"} {
		if f := flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return cli.Usagef("%s: names no file or directory", name)
		}
	}
	if !o.dryRun {
		if err := o.devices.Check(flags, o.backend); err != nil {
			return err
		}
		return o.placed.Check(flags)
	}
	for _, name := range notDry() {
		if flags.Changed(name) {
			return cli.Usagef("--%s: a dry run reads no text, computes nothing and trains nothing", name)
		}
	}
	return nil
}

// printer makes what shows the run; done closes its log.
func (o *options) printer(stdout, stderr io.Writer) (p *printer, done func(), err error) {
	p, done = &printer{json: o.format == "json"}, func() {}
	if !o.quiet {
		p.out = stdout
		if cli.Rewritable(stderr) {
			p.status = stderr
		}
	}
	if o.log != "" {
		f, err := o.openLog()
		if err != nil {
			return nil, nil, fmt.Errorf("log: %w", err)
		}
		p.log, done = f, func() { f.Close() } // what could not be written, Write said
	}
	return p, done, nil
}

// openLog opens the log. One that holds lines is gone on with where the run is.
func (o *options) openLog() (*os.File, error) {
	f, size, err := files.Append(o.log)
	if err == nil && size > 0 && o.resume == "" {
		err = errors.Join(cli.Usagef("%s: holds %d bytes of an earlier run; name another file, or go on from its checkpoint with --resume", o.log, size), f.Close())
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// fresh refuses a directory for the history that holds another one, or what else
// the run reads or writes.
func (o *options) fresh() error {
	if o.history == "" {
		return nil
	}
	if o.resume != "" && cli.Same(o.history, o.resume) {
		return cli.Usagef("history: %s: is the directory that --resume reads; name another one", o.history)
	}
	if strings.HasSuffix(o.log, trace.Extension) && cli.Below(o.log, o.history) {
		return cli.Usagef("log: %s: lies below --history %s, where a file named *%s is a rank's history", o.log, o.history, trace.Extension)
	}
	return cli.FreshDir(o.history)
}

// begin prints what is trained, and what may surprise of it.
func (o *options) begin(p *printer, c spec.Config, backend string, from *checkpoint.Checkpoint, hosts ...string) error {
	h := newHeader(c, backend)
	h.Simulated = cli.Simulated(backend)
	p.simulated = h.Simulated
	h.Hosts = hosts
	if o.placed.Apart() {
		h.Agents, h.started = procs.Deal(o.agents(c), h.Ranks), o.placed.Source()
	} else {
		h.Transport = cli.OneProcess(o.placed.Transport)
	}
	if from != nil {
		h.Checkpoint, h.From = from.Dir, from.Manifest.Step
		p.first = from.Manifest.Step
	}
	switch {
	case p.out == nil:
	case p.json:
		return writeJSON(p.out, h)
	default:
		h.text(p.out)
	}
	return nil
}

// stoppable is the context to train under, and what ends the run after a step: with
// a directory for checkpoints the end of ctx does that, and not at once. done waits
// until nothing writes to stderr any more.
func (o *options) stoppable(ctx context.Context, stderr io.Writer) (run context.Context, stop *launch.Stop, done func()) {
	if o.save == "" {
		return ctx, &launch.Stop{Wanted: func() bool { return false }}, func() {}
	}
	said := make(chan struct{})
	live := context.AfterFunc(ctx, func() {
		defer close(said)
		fmt.Fprintln(stderr, "train: a checkpoint follows this step; a second signal ends the run at once")
	})
	done = func() {
		if !live() {
			<-said
		}
	}
	return context.WithoutCancel(ctx), &launch.Stop{Wanted: func() bool { return ctx.Err() != nil }}, done
}

// version says what was built.
func version() string {
	e := report.Here()
	return e.Build()
}
