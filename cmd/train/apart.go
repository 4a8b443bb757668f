package main

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/train"
)

// agents is the number of processes that the ranks of a valid run are dealt over.
func (o *options) agents(c spec.Config) int { return cmp.Or(o.placed.Agents, c.Plan.World()) }

// checkAgents refuses agents without ranks, and what they could not sum.
func (o *options) checkAgents(c spec.Config) error {
	if err := o.placed.CheckPlan(c.Plan); err != nil {
		return err
	}
	if n := o.agents(c); n > c.Plan.World() {
		return cli.Usagef("agents=%d: plan %s has %d ranks, one for each at the most", n, c.Plan, c.Plan.World())
	}
	return nil
}

// team starts the agents of a run.
func (o *options) team(ctx context.Context, c spec.Config, text data.Text, ck train.Checkpoints, stderr io.Writer) (*procs.Team, error) {
	n := o.agents(c)
	identity, err := o.identity(c, ck)
	if err != nil {
		return nil, err
	}
	opts := procs.Options{Agents: n, Args: o.args, Environment: o.placed.Share(n), Identity: identity, Deadline: o.deadline, Shared: o.shared(), Found: o.placed.Found(o.deadline), Lost: o.placed.Tells(stderr, "train")}
	if o.data == "-" {
		opts.Stdin = text.Bytes
	}
	return procs.Start(ctx, opts)
}

// identity is what the agents of a run must agree on with its driver.
func (o *options) identity(c spec.Config, ck train.Checkpoints) (string, error) {
	from := ""
	if ck.Resume != nil {
		from = ck.Resume.Dir
	}
	return procs.Identity(c, from, ck.Dir, ck.Every, o.history, o.placed.Transport, o.devices.Kind(o.backend))
}

// shared are the directories that agents write to, which must be those of all hosts.
func (o *options) shared() []string {
	return slices.DeleteFunc([]string{o.save, o.history}, func(dir string) bool { return dir == "" })
}

// apart trains with the agents of a team.
func (o *options) apart(team *procs.Team) trainer {
	return func(ctx context.Context, c spec.Config, _ data.Text, parts launch.Parts) (*launch.Outcome, error) {
		task := procs.Task{World: c.Plan.World(), Progress: parts.Progress}
		if o.save != "" {
			task.Stop = parts.Checkpoints.Stop
		}
		return team.Run(ctx, task)
	}
}

// serve is the work of an agent, which writes the history of its ranks itself, as it
// does their part of a checkpoint.
func (o *options) serve(ctx context.Context, seat procs.Server, c spec.Config, text data.Text, parts launch.Parts) (int, error) {
	ck, err := o.checkpoints(ctx, c, io.Discard) // the driver has said what is to be said
	if err != nil {
		return cli.Usage, err
	}
	if ck.Resume != nil {
		defer ck.Resume.Close()
	}
	identity, err := o.identity(c, ck)
	if err != nil {
		return cli.CannotRun, err
	}
	if o.save != "" {
		ck.Stop = func(int) bool { return false } // the driver is asked
	}
	parts.Checkpoints = ck
	code, err := seat.Serve(ctx, identity, func(ctx context.Context, j *procs.Job) (*launch.Outcome, error) {
		run := parts
		j.Join(&run, o.placed.Transport)
		j.Stream(&run)
		return launch.Local(ctx, c, text, run)
	})
	if err != nil {
		return cli.CannotRun, err
	}
	return code, nil
}
