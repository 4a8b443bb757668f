package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// defaultAgents is how many processes there are where nobody says.
const defaultAgents = 2

// agents is the number of processes over which ranks are dealt.
func (o *options) agents() int { return cmp.Or(o.placed.Agents, defaultAgents) }

// team starts the agents, which from then on make the runs of opts.
func (o *options) team(ctx context.Context, opts *contracts.Options, stderr io.Writer) (*procs.Team, error) {
	identity, err := o.identity(opts)
	if err != nil {
		return nil, err
	}
	start := procs.Options{Agents: opts.Agents, Args: o.args, Environment: o.placed.Share(opts.Agents), Identity: identity, Deadline: o.deadline, Found: o.placed.Found(o.deadline), Lost: o.placed.Tells(stderr, "verify")}
	if o.data == "-" {
		start.Stdin = opts.Text.Bytes
	}
	team, err := procs.Start(ctx, start)
	if err != nil {
		return nil, err
	}
	if hosts := team.Hosts(); len(hosts) > 0 {
		opts.Environment.Transport += "; " + strings.Join(hosts, "; ")
	}
	opts.Over, o.links = team.Over, team.Links
	opts.Devices = o.opened.PerProcess(team.Here())
	o.watching = func(ctx context.Context) ([]report.Device, error) { return watchedAway(ctx, team, opts.Agents) }
	opts.Away = func(ctx context.Context, a suite.Away) (*trace.History, error) { return away(ctx, team, a) }
	return team, nil
}

// away has the agents make a run.
func away(ctx context.Context, team *procs.Team, a suite.Away) (h *trace.History, err error) {
	task := procs.Task{World: a.World}
	if task.What, err = json.Marshal(a); err != nil {
		return nil, err
	}
	if a.World == 0 {
		if task.Dir, err = team.Dir(); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(task.Dir)) }()
	}
	out, err := team.Run(ctx, task)
	if out == nil {
		return nil, err
	}
	return out.History, err
}

// identity is what agents must agree on with their driver: all that decides which runs
// there are.
func (o *options) identity(opts *contracts.Options) (string, error) {
	own := opts.Options
	// An agent has a share of these, and hears what its driver has.
	own.Text.Bytes, own.Memory, own.Processes, own.Devices = nil, 0, 0, 0
	return procs.Identity(own, opts.Text.Hash(), o.contracts, o.name, o.selfTest, o.faults, o.deadline, o.placed.Transport, o.devices.Kind(o.backend))
}

// company is the agents that make a run together.
type company struct {
	*procs.Job
	dirs int // that were asked for
}

// Dir implements suite.Company.
func (c *company) Dir() (string, error) {
	c.dirs++
	dir := filepath.Join(c.Job.Dir, strconv.Itoa(c.dirs))
	err := os.Mkdir(dir, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist): // another agent was first
		return dir, nil
	case errors.Is(err, fs.ErrNotExist): // it is the driver that has made what is above
		host, _ := os.Hostname()
		err = fmt.Errorf("directory %s: is on agent 0's host and not on %s: runs that store need one that all hosts share; set TMPDIR there to such a one: %w", c.Job.Dir, host, err)
	}
	return dir, err
}

// serve is the work of an agent.
func (o *options) serve(ctx context.Context, seat procs.Server, opts contracts.Options) (int, error) {
	identity, err := o.identity(&opts)
	if err != nil {
		return cli.CannotRun, err
	}
	a, err := contracts.NewAgent(opts, o.selfTest)
	if err != nil {
		return cli.Usage, cli.AsUsage(err)
	}
	var once sync.Once
	var stop func() []cli.Watched
	code, err := seat.Serve(ctx, identity, func(ctx context.Context, j *procs.Job) (*launch.Outcome, error) {
		var run suite.Away
		if err := json.Unmarshal(j.What, &run); err != nil {
			return nil, err
		}
		once.Do(func() { stop = o.opened.Watch() }) // before its first run; its driver says when all are over
		if run == (suite.Away{}) {
			return watchedHere(j, opts.Agents, stop())
		}
		if have := o.opened.Have(); run.Name.Contract != "" && run.Devices != have {
			return nil, fmt.Errorf("this process has %d devices for its ranks, and agent 0's host %d for each: hosts must have as many", have, run.Devices)
		}
		h, err := a.Make(ctx, run, func(env *suite.Env) {
			j.Join(&env.Parts, o.placed.Transport)
			env.Company = &company{Job: j}
			if j.Dir == "" { // a single run, of which the driver can have the steps one by one
				j.Stream(&env.Parts)
			}
		})
		return &launch.Outcome{History: h}, err
	})
	if err != nil {
		return cli.CannotRun, err
	}
	return code, nil
}
