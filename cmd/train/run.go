// Command train runs training of a named model under a parallel plan, its ranks as
// goroutines of this process or of several, and can end with the run's fingerprint: the
// same for every plan.
package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// options are the flags.
type options struct {
	config, data, plan, optimizer, backend, history, format string
	save, resume, log, completion                           string
	steps, sequences, saveEvery, warmup, horizon            int
	lr, clip, minLR                                         float64
	tied, fingerprint, dryRun, quiet                        bool
	seed                                                    uint64
	deadline                                                time.Duration
	placed                                                  cli.Placement
	devices                                                 cli.Devices
	links                                                   func() []string // by which ranks in processes have reached each other; else nil
	left                                                    []string        // what is too much for the history
	args                                                    []string        // of the command
	stdin                                                   io.Reader
}

const long = `Train a model and print loss, gradient norm, learning rate and tokens of every step.

All ranks of the plan run in this process; with --launch procs in processes that
it starts, over which they are dealt. Any plan whose data-parallel size
divides the model's logical workers gives the same bits, so --fingerprint ends
with the same line. With --save, SIGINT and SIGTERM end the run after the step
that is under way, with a checkpoint; a second signal ends it at once.

`

// help is the long help.
func help() string { return long + cli.Configurations() + "\n" + cli.ExitCodes }

const examples = `  train --fingerprint
  train --plan dp=4,microbatches=2 --fingerprint
  train --config odd --optimizer sgd --steps 5 --history out/odd
  train --data book.txt --lr 3e-4 --clip 1 --warmup 100 --horizon 2000 --steps 2000
  zcat book.gz | train --data - --log out/steps.ndjson --quiet
  train --plan dp=4,zero=3 --steps 10 --save out/ck
  train --plan tp=2,pp=2 --steps 20 --resume out/ck --fingerprint
  train --plan dp=2,tp=2,pp=2,zero=1 --launch procs --agents 3 --fingerprint
  train --dry-run --config llama2-7b --plan dp=8,tp=8,pp=8,zero=3`

// run is the command: results to stdout, errors to stderr, the exit code returned.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := cli.NewOutput(stdout)
	cmd, code := command(out, stderr, args...)
	return out.Exit(cmd.Name(), cli.Execute(ctx, cmd, args, out, stderr, code), stderr)
}

// command is the command with its flags, and where its exit code will be; its agents
// are run with args too.
func command(stdout, stderr io.Writer, args ...string) (*cobra.Command, *int) {
	o := options{args: args}
	code := new(int)
	cmd := &cobra.Command{Use: "train", Short: "Train a model under a parallel plan", Long: help(), Example: examples, Version: version()}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.config, "config", "nano", "named model `configuration`, or a .json file that describes one")
	f.StringVar(&o.data, "data", "", "training text `FILE`, - is stdin; every byte is a token (default: the built-in text)")
	f.StringVar(&o.plan, "plan", "dp=1", "parallel `plan`, such as dp=4,microbatches=2")
	f.IntVar(&o.steps, "steps", 20, "optimizer steps")
	f.StringVar(&o.optimizer, "optimizer", "", "adamw or sgd (default: the configuration's)")
	f.Float64Var(&o.lr, "lr", 0, "peak learning rate (default: the configuration's)")
	f.IntVar(&o.warmup, "warmup", 0, "optimizer steps of linear warm-up (default: the configuration's)")
	f.IntVar(&o.horizon, "horizon", 0, "optimizer step at which the cosine ends at --min-lr; 0 stays at --lr (default: the configuration's)")
	f.Float64Var(&o.minLR, "min-lr", 0, "learning rate from the horizon on (default: the configuration's)")
	f.Float64Var(&o.clip, "clip", 0, "largest gradient norm; 0 clips nothing (default: the configuration's)")
	f.BoolVar(&o.tied, "tied", false, "the head is the embedding (default: the configuration's)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the initial weights")
	f.StringVar(&o.backend, "backend", cli.DefaultBackend, "compute backend: cpu (assembly where the processor has it), ref (plain Go) or cuda (GPUs; make build-cuda)")
	o.devices.Flags(f)
	f.BoolVar(&o.fingerprint, "fingerprint", false, "end with the hash of weights, moments and loss")
	f.StringVar(&o.history, "history", "", "record what verify --history judges, in the empty directory `DIR`")
	f.StringVar(&o.save, "save", "", "store checkpoints below `DIR`: after the last step, and as --save-every says")
	f.IntVar(&o.saveEvery, "save-every", 0, "steps between checkpoints (default: after the last step only)")
	f.StringVar(&o.resume, "resume", "", "go on from the checkpoint in `DIR`, or the latest below it, made under any plan")
	f.DurationVar(&o.deadline, "deadline", time.Hour, "how long an operation waits for a peer that neither ends nor comes")
	o.placed.Flags(f, "one for each rank")
	f.IntVar(&o.sequences, "sequences", 0, "sequences of a step (default: the configuration's)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print shards, schedule, memory and bytes of the plan; train nothing")
	f.StringVar(&o.format, "format", "text", "of what is printed: text or json; of a run a line for each step, one before and one after")
	f.StringVar(&o.log, "log", "", "write a line of JSON for each step to `FILE`; with --resume append to it")
	f.BoolVar(&o.quiet, "quiet", false, "print nothing but the fingerprint and errors")
	f.StringVar(&o.completion, "completion", "", "print the completion script of a `SHELL`: bash, zsh or fish")
	cli.Complete(cmd)
	cli.Alone(cmd, "completion")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.stdin = cmd.InOrStdin()
		if cmd.Flags().Changed("completion") {
			return cli.Completion(cmd, o.completion, stdout)
		}
		if err := o.check(cmd.Flags()); err != nil {
			return err
		}
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

func (o *options) execute(ctx context.Context, flags *pflag.FlagSet, stdout, stderr io.Writer) (int, error) {
	c, text, err := o.configure(ctx, flags)
	if err != nil {
		return cli.Usage, err
	}
	opened, err := cli.Open(o.backend, o.devices, o.placed.Pool())
	if err != nil {
		return cli.Usage, err
	}
	opened.Sit(o.placed.Seating(o.agents(c)))
	world, err := cli.Transport(o.placed.Transport)
	if err == nil {
		err = o.checkAgents(c)
	}
	if err != nil {
		return cli.Usage, err
	}
	if o.deadline <= 0 {
		return cli.Usage, cli.Usagef("deadline=%v: must be greater than 0", o.deadline)
	}
	if o.saveEvery < 0 || o.saveEvery > 0 && o.save == "" {
		return cli.Usage, cli.Usagef("save-every=%d: must not be negative, and needs --save", o.saveEvery)
	}
	parts := launch.Parts{Backend: opened.Backend, World: world, Deadline: o.deadline, Keep: keep(c.Steps - 1), History: o.history}
	switch seat, err := o.placed.Seat(o.deadline, o.shared()...); {
	case err != nil:
		return cli.Usage, err
	case seat != nil:
		o.placed.Failures(stderr, "train", func(error) bool { return true })
		return o.serve(ctx, seat, c, text, parts)
	}
	if _, err := dryrun.Fits(c, launch.Here, cli.Memory()); err != nil {
		return cli.CannotRun, err
	}
	release, err := cli.Claim(o.history, o.save)
	if err != nil {
		return cli.CannotRun, err
	}
	defer release()
	if err := o.fresh(); err != nil {
		return cli.CannotRun, err
	}
	ck, err := o.checkpoints(ctx, c, stderr)
	if err != nil {
		return cli.Usage, err
	}
	if ck.Resume != nil {
		defer ck.Resume.Close()
	}
	for _, what := range o.left {
		fmt.Fprintf(stderr, "train: %s\n", what)
	}
	p, closeLog, err := o.printer(stdout, stderr)
	if err != nil {
		return cli.CannotRun, err
	}
	defer closeLog()
	first, err := opened.Backend(0)
	if err != nil {
		return cli.CannotRun, err
	}
	parts.Hooks = train.Hooks{Progress: p.progress, Checkpoints: ck}
	if !o.placed.Apart() {
		if p.waits, err = opened.Waits(c.Plan.Dims().Rank(names.Coord{PP: c.Plan.Dims().PP - 1})); err != nil {
			return cli.CannotRun, err
		}
		if err := o.begin(p, c, ck.Mark(first.Name()), ck.Resume); err != nil {
			return cli.CannotRun, err
		}
		return o.run(ctx, c, text, p, stdout, stderr, parts, launch.Local)
	}
	team, err := o.team(ctx, c, text, ck, stderr)
	if err != nil {
		return cli.CannotRun, o.placed.Unsaid(cli.Why(ctx, err))
	}
	o.links = team.Links
	code := cli.CannotRun
	defer func() { team.Close(code) }()
	if err := o.begin(p, c, ck.Mark(first.Name()), ck.Resume, team.Hosts()...); err != nil {
		return code, err
	}
	code, err = o.run(ctx, c, text, p, stdout, stderr, parts, o.apart(team))
	code = cli.Ending(stdout, code)
	return code, o.placed.Ends(stderr, "train", err)
}

// trainer trains as launch.Local does.
type trainer func(context.Context, spec.Config, data.Text, launch.Parts) (*launch.Outcome, error)

// run trains.
func (o *options) run(ctx context.Context, c spec.Config, text data.Text, p *printer, stdout, stderr io.Writer, parts launch.Parts, train trainer) (int, error) {
	run, stop, done := o.stoppable(ctx, stderr)
	parts.Checkpoints.Stop = stop.Ask
	out, err := train(run, c, text, parts)
	done()
	p.close()
	if err == nil {
		err = p.err
	}
	_, early := stop.After()
	if o.history != "" && out != nil && (err != nil || early) {
		cli.Tell(stderr, "train", fmt.Errorf("the history up to there is in %s", o.history))
	}
	if err != nil {
		if run.Err() == nil && out != nil && diverged(out.History) {
			cli.Tell(stderr, "train", fmt.Errorf("%w%s", err, cli.EndMark(p.simulated)))
			return cli.Violated, nil
		}
		return cli.CannotRun, cli.Why(run, err)
	}
	if n, ok := stop.After(); ok {
		return cli.CannotRun, fmt.Errorf("interrupted: ended after step %d of %d; --resume %s goes on", n, c.Steps, o.save)
	}
	return o.finish(out.History, c.Steps-1, p, stdout)
}

// keep says which events the run must remember: only what finish and diverged
// read, so that memory does not grow with the steps. A history is written meanwhile.
func keep(last int) func(trace.Event) bool {
	return func(e trace.Event) bool {
		state := e.Kind == trace.KindDigest && e.What != trace.Grad && e.What != trace.WorkerGrad
		loss := e.Kind == trace.KindScalar && e.What == trace.Loss
		return e.Kind == trace.KindDiff || e.Step == last && (state || loss)
	}
}

// finish prints how ranks in processes have reached each other, how often a step waits for
// a device, and the fingerprint, after the last step.
func (o *options) finish(h *trace.History, last int, p *printer, stdout io.Writer) (int, error) {
	end := map[string]any{"event": "end"}
	simulated := slices.ContainsFunc(h.Backends(), cli.Simulated)
	if simulated {
		end["simulated"] = true
	}
	if o.links != nil && !o.quiet {
		end["transport"] = cli.Links(o.links())
	}
	if n, ok := p.waited(); ok && !o.quiet {
		end["waits"] = n
	}
	if o.fingerprint {
		f, err := spec.FingerprintAt(h, last)
		if err != nil {
			return cli.CannotRun, err
		}
		end["fingerprint"] = f.String()
	}
	if o.format == "json" {
		if o.quiet && !o.fingerprint {
			return cli.OK, nil
		}
		return cli.OK, writeJSON(stdout, end)
	}
	for _, what := range []string{"transport", "waits", "fingerprint"} {
		if said, ok := end[what]; ok {
			if what == "waits" {
				said = fmt.Sprintf("%v for the device in the second step", said)
			}
			fmt.Fprintf(stdout, "%s %s%s\n", what, said, cli.EndMark(simulated))
		}
	}
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
