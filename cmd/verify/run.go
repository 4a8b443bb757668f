// Command verify checks contracts: it trains on this machine (or reads recorded
// histories), judges what happened, and says held, violated or inconclusive.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// options are the flags.
type options struct {
	contracts, plans, formats, faults, histories []string
	config, data, backend, explain, out          string
	completion                                   string
	name                                         string // of a case
	placed                                       cli.Placement
	devices                                      cli.Devices
	opened                                       *cli.Opened
	watching                                     func(context.Context) ([]report.Device, error) // ends what agents see of devices; nil without agents
	links                                        func() []string                                // by which ranks in processes have reached each other; else nil
	args                                         []string                                       // of the command
	stdin                                        io.Reader
	seed                                         uint64
	steps, level, expectRanks                    int
	selfTest, list                               bool
	timeout, duration, deadline                  time.Duration
}

const long = `Check that this machine trains correctly.

Each contract is a statement about training. verify runs the training core under
several parallel plans, records what happens, and judges every clause of the
statement on that evidence. Results go to stdout, errors to stderr.

`

// help is the long help.
func help() string { return long + cli.Configurations() + "\n" + cli.ExitCodes }

const examples = `  verify                                    all contracts, in seconds
  verify --contract C-DDP-001 --plan dp=2 --plan dp=4,microbatches=2
  verify --contract C-DDP-001.2             one clause of it
  verify --contract C-DDP-001 --case "nano dp=4 of 5 sequences"
  verify --config mine.json                 a model of one's own
  verify --plan "dp=2; dp=4,microbatches=2" --config odd --data book.txt
  verify --self-test                        prove that every check can fail
  verify --self-test --faults all           with the generated faults too, in minutes
  verify --format text,json,junit --out out reports and histories as files
  verify --launch procs --agents 3          ranks in processes of their own
  mpirun -n 4 bin/verify --expect-agents 4  ranks in processes that another has started
  verify --history out/histories            judge recorded runs again; repeatable
  verify --level 3 --duration 8h            soak
  verify --explain C-DDP-001
  verify --explain reduction-skipped`

// run is the command: results to stdout, errors to stderr, the exit code returned.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := cli.NewOutput(stdout)
	cmd, code := command(out, stderr, args...)
	return out.Exit(cmd.Name(), cli.Execute(ctx, cmd, args, out, stderr, code), stderr)
}

// command is the command with its flags, and where its exit code will be; reports
// say that it was run with args.
func command(stdout, stderr io.Writer, args ...string) (*cobra.Command, *int) {
	o := options{args: args}
	code, version := new(int), report.Here()
	cmd := &cobra.Command{Use: "verify", Short: "Check that this machine trains correctly", Long: help(), Example: examples, Version: version.Build()}
	o.flags(cmd.Flags())
	cli.Apart(cmd, "history", "self-test", "case", "plan", "config", "seed", "steps", "level", "duration", "transport", "launch", "agents", "expect-agents")
	cli.Apart(cmd, "self-test", "case", "plan", "config", "seed", "steps", "duration", "transport")
	cli.Alone(cmd, "list", "contract")
	cli.Alone(cmd, "explain")
	cli.Alone(cmd, "completion")
	values(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.stdin = cmd.InOrStdin()
		if cmd.Flags().Changed("completion") {
			return cli.Completion(cmd, o.completion, stdout)
		}
		c, err := o.execute(cmd.Context(), cmd.Flags(), stdout, stderr)
		*code = c
		return err
	}
	return cmd, code
}

func (o *options) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringSliceVar(&o.contracts, "contract", []string{"all"}, "`IDs` of contracts, or of clauses (C-DDP-001.2), separated by commas, or all")
	f.StringVar(&o.name, "case", "", "only the case of this `name`, as findings print it")
	f.StringArrayVar(&o.plans, "plan", nil, "parallel `plans` instead of the contract's own; repeatable, or separated by ; or blanks")
	f.StringVar(&o.config, "config", "", "named model `configuration` instead of the contract's own, or a .json file that describes one")
	f.StringVar(&o.data, "data", "", "training text `FILE`, - is stdin (default: the built-in text; golden cases keep that)")
	f.StringArrayVar(&o.histories, "history", nil, "judge the runs recorded below `DIR` instead of running; repeatable")
	f.IntVar(&o.expectRanks, "expect-ranks", 0, "with --history: ranks that must have left one; others are named")
	f.StringVar(&o.backend, "backend", cli.DefaultBackend, "compute backend: cpu (assembly where the processor has it), ref (plain Go) or cuda (GPUs; make build-cuda)")
	o.devices.Flags(f)
	o.placed.Flags(f, fmt.Sprint(defaultAgents))
	f.Uint64Var(&o.seed, "seed", 0, "seed of the initial weights, from 1 (default: the contract's own)")
	f.IntVar(&o.steps, "steps", 0, "optimizer steps (default: the contract's own); a note names cases that take others")
	f.IntVar(&o.level, "level", 1, "how much to run: 1 seconds, 2 minutes, 3 soak")
	f.BoolVar(&o.selfTest, "self-test", false, "run the contracts' mutants: every clause must catch its own")
	f.StringSliceVar(&o.faults, "faults", []string{contracts.FaultsDefault}, "with --self-test: which `FAULTS` to run: default (the contracts' mutants), all (also generated ones), or IDs")
	f.BoolVar(&o.list, "list", false, "list contracts and clauses, all or those of --contract")
	f.StringVar(&o.explain, "explain", "", "say what the contract or fault `ID` means, how it is judged and what it finds")
	f.StringSliceVar(&o.formats, "format", []string{"text"}, "report `formats`: text, json, junit; several need --out")
	f.StringVar(&o.out, "out", "", "write reports and histories into the empty directory `DIR`")
	f.DurationVar(&o.deadline, "deadline", 10*time.Minute, "how long an operation waits for a peer; in broken runs of --self-test at most 10s")
	f.DurationVar(&o.timeout, "timeout", 0, "give up after this long (default: never)")
	f.DurationVar(&o.duration, "duration", 0, "with --level 3: repeat until this long has passed")
	f.StringVar(&o.completion, "completion", "", "print the completion script of a `SHELL`: bash, zsh or fish")
}

func (o *options) execute(ctx context.Context, flags *pflag.FlagSet, stdout, stderr io.Writer) (int, error) {
	if err := contracts.Validate(contracts.All()); err != nil {
		return cli.CannotRun, err
	}
	if flags.Changed("explain") {
		return explain(ctx, stdout, o.explain)
	}
	cs, err := o.selected()
	if err != nil {
		return cli.Usage, err
	}
	if o.list {
		return list(stdout, cs)
	}
	if err := o.check(flags); err != nil {
		return cli.Usage, err
	}
	if o.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("--timeout %s has passed", o.timeout))
		defer stop()
	}
	return o.verify(ctx, cs, stdout, stderr)
}

// values tells shells the values of flags.
func values(cmd *cobra.Command) {
	cli.Complete(cmd)
	ids := []string{"all"}
	for _, c := range contracts.All() {
		ids = append(ids, c.ID)
	}
	cli.CompleteFlag(cmd, "contract", ids...)
	cli.CompleteFlag(cmd, "explain", ids[1:]...)
	cli.CompleteFlag(cmd, "format", "text", "json", "junit")
	cli.CompleteFlag(cmd, "level", "1", "2", "3")
	cli.CompleteFlag(cmd, "faults", contracts.FaultsDefault, contracts.FaultsAll)
}

// selected are the contracts that --contract names.
func (o *options) selected() ([]*suite.Suite, error) {
	out, err := contracts.Pick(o.contracts)
	if err != nil {
		return nil, cli.AsUsage(err)
	}
	if len(out) == 0 {
		return nil, cli.Usagef("contract: none is named; verify --list shows them")
	}
	return out, nil
}
