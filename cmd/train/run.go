// Command train runs training of a named model under a parallel plan, all ranks
// as goroutines of this process, and can end with the run's fingerprint: the
// same for every plan.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// options are the flags.
type options struct {
	config, data, plan, optimizer, backend, history, format string
	save, resume                                            string
	steps, sequences, saveEvery                             int
	lr, clip                                                float64
	tied, fingerprint, dryRun                               bool
	seed                                                    uint64
	deadline                                                time.Duration
	left                                                    []string // what is too much for the history
}

const long = `Train a model and print loss, gradient norm, learning rate and tokens of every step.

All ranks of the plan run in this process. Any plan whose data-parallel size
divides the model's logical workers gives the same bits, so --fingerprint ends
with the same line.

` + cli.ExitCodes

const examples = `  train --fingerprint
  train --plan dp=4,microbatches=2 --fingerprint
  train --config odd --optimizer sgd --steps 5 --history out/odd
  train --data book.txt --lr 3e-4 --clip 1
  train --plan dp=4,zero=3 --steps 10 --save out/ck
  train --plan tp=2,pp=2 --steps 20 --resume out/ck --fingerprint
  train --dry-run --config llama2-7b --plan dp=8,tp=8,pp=8,zero=3`

// run is the command: results to stdout, errors to stderr, the exit code returned.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd, code := command(stdout, stderr)
	return cli.Execute(ctx, cmd, args, stdout, stderr, code)
}

// command is the command with its flags, and where its exit code will be.
func command(stdout, stderr io.Writer) (*cobra.Command, *int) {
	var o options
	code := new(int)
	cmd := &cobra.Command{Use: "train", Short: "Train a model under a parallel plan", Long: long, Example: examples}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.config, "config", "nano", "named model `configuration`, or a .json file that describes one")
	f.StringVar(&o.data, "data", "", "training text `FILE`; every byte is a token (default: the built-in text)")
	f.StringVar(&o.plan, "plan", "dp=1", "parallel `plan`, such as dp=4,microbatches=2")
	f.IntVar(&o.steps, "steps", 20, "optimizer steps")
	f.StringVar(&o.optimizer, "optimizer", "", "adamw or sgd (default: the configuration's)")
	f.Float64Var(&o.lr, "lr", 0, "peak learning rate (default: the configuration's)")
	f.Float64Var(&o.clip, "clip", 0, "largest gradient norm; 0 clips nothing (default: the configuration's)")
	f.BoolVar(&o.tied, "tied", false, "the head is the embedding (default: the configuration's)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the initial weights")
	f.StringVar(&o.backend, "backend", cli.DefaultBackend, "compute backend: cpu (assembly where the processor has it) or ref (plain Go)")
	f.BoolVar(&o.fingerprint, "fingerprint", false, "end with the hash of weights, moments and loss")
	f.StringVar(&o.history, "history", "", "record what verify --history judges, in the empty directory `DIR`")
	f.StringVar(&o.save, "save", "", "store checkpoints below `DIR`: after the last step, and as --save-every says")
	f.IntVar(&o.saveEvery, "save-every", 0, "steps between checkpoints (default: after the last step only)")
	f.StringVar(&o.resume, "resume", "", "go on from the checkpoint in `DIR`, or the latest below it, made under any plan")
	f.DurationVar(&o.deadline, "deadline", time.Hour, "how long an operation waits for a peer that neither ends nor comes")
	f.IntVar(&o.sequences, "sequences", 0, "sequences of a step (default: the configuration's)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print shards, schedule, memory and bytes of the plan; train nothing")
	f.StringVar(&o.format, "format", "text", "of a dry run: text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.dryRun {
			c, err := o.dry(cmd.Flags(), stdout)
			*code = c
			return err
		}
		c, err := o.execute(cmd.Context(), cmd.Flags(), stdout, stderr)
		*code = c
		return err
	}
	return cmd, code
}

// configure is the preset with the given flags over it.
func (o *options) configure(flags *pflag.FlagSet) (spec.Config, data.Text, error) {
	fail := func(err error) (spec.Config, data.Text, error) {
		return spec.Config{}, data.Text{}, cli.AsUsage(err)
	}
	c, err := o.planned(flags)
	if err != nil {
		return fail(err)
	}
	text, err := cli.Text(o.data)
	if err != nil {
		return fail(err)
	}
	c.Text, c.TextHash = text.Name, text.Hash()
	c.Evidence.Digests = o.fingerprint
	if err := c.Validate(); err != nil {
		return fail(err)
	}
	if o.history != "" {
		c.Evidence, o.left = evidence(c)
	}
	_, err = c.Set(text)
	return c, text, cli.AsUsage(err)
}

// planned is the preset on the plan with the given flags over it, not validated.
func (o *options) planned(flags *pflag.FlagSet) (spec.Config, error) {
	c, err := cli.Preset(o.config)
	if err != nil {
		return c, err
	}
	if c.Plan, err = plan.Parse(o.plan); err != nil {
		return c, err
	}
	return c, o.override(flags, &c)
}

// override puts the flags that were given into c; the others keep the preset.
func (o *options) override(flags *pflag.FlagSet, c *spec.Config) error {
	if o.steps < 1 || o.steps > spec.MaxSteps {
		return fmt.Errorf("steps=%d: must be from 1 to %d", o.steps, spec.MaxSteps)
	}
	c.Steps, c.Seed, c.Backend = o.steps, o.seed, o.backend
	if flags.Changed("optimizer") && o.optimizer != c.Optimizer.Name {
		if o.optimizer == "" {
			return fmt.Errorf("optimizer \"\": known are adamw, sgd")
		}
		c.Optimizer.Name, c.Optimizer.Decay = o.optimizer, 0 // the decay's default depends on the optimizer
	}
	if flags.Changed("lr") {
		if !(o.lr > 0) {
			return fmt.Errorf("lr=%v: must be greater than 0", o.lr)
		}
		c.Optimizer.LR = o.lr
	}
	if flags.Changed("sequences") {
		if o.sequences < 1 {
			return fmt.Errorf("sequences=%d: must be at least 1", o.sequences)
		}
		c.Sequences = o.sequences
	}
	if flags.Changed("clip") {
		c.Optimizer.Clip = o.clip
	}
	if flags.Changed("tied") {
		c.Model.Tied = o.tied
	}
	return nil
}

func (o *options) execute(ctx context.Context, flags *pflag.FlagSet, stdout, stderr io.Writer) (int, error) {
	c, text, err := o.configure(flags)
	if err != nil {
		return cli.Usage, err
	}
	open, err := cli.OpenBackend(o.backend)
	if err != nil {
		return cli.Usage, err
	}
	if _, err := dryrun.Fits(c, launch.Here, cli.Memory()); err != nil {
		return cli.CannotRun, err
	}
	if o.history != "" {
		if err := cli.FreshDir(o.history); err != nil {
			return cli.CannotRun, err
		}
	}
	if o.deadline <= 0 {
		return cli.Usage, cli.Usagef("deadline=%v: must be greater than 0", o.deadline)
	}
	ck, err := o.checkpoints(c)
	if err != nil {
		return cli.Usage, err
	}
	if ck.Resume != nil {
		defer ck.Resume.Close()
	}
	for _, what := range o.left {
		fmt.Fprintf(stderr, "train: %s\n", what)
	}
	p := newPrinter(stdout, stderr, c.Optimizer)
	out, err := launch.Local(ctx, c, text, launch.Parts{Backend: open, Deadline: o.deadline, Keep: o.keep(c.Steps - 1),
		Hooks: train.Hooks{Progress: p.progress, Checkpoints: ck}})
	p.close()
	if out != nil && out.History != nil && o.history != "" {
		if e := out.History.Save(o.history); e != nil && err == nil {
			err = e
		}
	}
	if err != nil {
		if ctx.Err() == nil && out != nil && diverged(out.History) {
			fmt.Fprintf(stderr, "train: %v\n", err)
			return cli.Violated, nil
		}
		return cli.CannotRun, cli.Why(ctx, err)
	}
	return o.finish(out.History, c.Steps-1, stdout)
}

// keep says which events the run must remember: all for a history, else only
// what finish and diverged read, so that memory does not grow with the steps.
func (o *options) keep(last int) func(trace.Event) bool {
	if o.history != "" {
		return nil
	}
	return func(e trace.Event) bool {
		state := e.Kind == trace.KindDigest && e.What != trace.Grad && e.What != trace.WorkerGrad
		loss := e.Kind == trace.KindScalar && e.What == trace.Loss
		return e.Kind == trace.KindDiff || e.Step == last && (state || loss)
	}
}

// checkpoints opens what the run goes on from. A checkpoint that is damaged, or
// of a run that computes something else, is a usage error.
func (o *options) checkpoints(c spec.Config) (ck train.Checkpoints, err error) {
	ck.Dir, ck.Every = o.save, o.saveEvery
	if o.saveEvery < 0 || o.saveEvery > 0 && o.save == "" {
		return ck, cli.Usagef("save-every=%d: must not be negative, and needs --save", o.saveEvery)
	}
	if o.resume == "" {
		return ck, nil
	}
	if ck.Resume, err = checkpoint.Open(o.resume); err != nil {
		return ck, cli.AsUsage(err)
	}
	if err = train.Resumable(ck.Resume, c); err != nil {
		ck.Resume.Close()
		return train.Checkpoints{}, cli.AsUsage(err)
	}
	return ck, nil
}

// finish prints the fingerprint after the last step.
func (o *options) finish(h *trace.History, last int, stdout io.Writer) (int, error) {
	if !o.fingerprint {
		return cli.OK, nil
	}
	f, err := spec.FingerprintAt(h, last)
	if err != nil {
		return cli.CannotRun, err
	}
	fmt.Fprintf(stdout, "fingerprint %s\n", f)
	return cli.OK, nil
}

// diverged reports whether ranks of the run were seen to differ.
func diverged(h *trace.History) bool {
	if h == nil {
		return false
	}
	for e := range h.All {
		if e.Kind == trace.KindDiff {
			return true
		}
	}
	return false
}
