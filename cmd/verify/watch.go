package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// watch begins to look at the devices on which ranks compute: those of this process, or of
// agents, each of which looks at its own. What it returns says what was seen.
func (o *options) watch() func(context.Context) ([]report.Device, error) {
	switch {
	case len(o.histories) > 0:
		return func(context.Context) ([]report.Device, error) { return nil, nil }
	case o.watching != nil:
		return o.watching
	}
	stop := o.opened.Watch()
	return func(context.Context) ([]report.Device, error) {
		var out []report.Device
		for _, w := range stop() {
			out = append(out, report.Device{Host: w.Host, Device: w.Device, Monitored: w.Monitored, Not: w.Not, Findings: w.Findings})
		}
		return out, nil
	}
}

// watchedHere is what an agent says of its devices to its driver: as what it recorded.
func watchedHere(j *procs.Job, agents int, all []cli.Watched) (*launch.Outcome, error) {
	host, _ := os.Hostname() // unknown is empty
	self := j.Number()
	l := &trace.Log{Header: trace.Header{Schema: trace.Schema, Rank: self, World: agents, Plan: "devices", Host: host, Process: self + 1}}
	for _, w := range all {
		what := trace.Unwatched
		if w.Monitored {
			what = trace.Watched
		}
		l.Record(trace.Event{Kind: trace.KindDevice, What: what, Unit: w.Device, Text: w.Not})
		for _, f := range w.Findings {
			l.Record(trace.Event{Kind: trace.KindDevice, What: trace.Fault, Unit: w.Device, Text: f})
		}
	}
	l.Record(trace.Event{Kind: trace.KindEnd})
	h, err := trace.Merge([]*trace.Log{l})
	return &launch.Outcome{History: h}, err
}

// watchedAway asks all agents what they have seen of their devices. One that says nothing
// has seen nothing: that is no pass.
func watchedAway(ctx context.Context, team *procs.Team, agents int) ([]report.Device, error) {
	what, err := json.Marshal(suite.Away{})
	if err != nil {
		return nil, err
	}
	out, err := team.Run(ctx, procs.Task{What: what})
	said := map[int][]report.Device{}
	if out != nil && out.History != nil {
		for agent, events := range out.History.Ranks {
			said[agent] = told(agent, out.History.Origin(agent).Host, events)
		}
	}
	var all []report.Device
	for agent := range agents {
		if _, ok := said[agent]; !ok {
			all = append(all, report.Device{Process: agent + 1, Device: "devices of agent " + fmt.Sprint(agent), Not: fmt.Sprintf("the agent did not say at the end: %v", err)})
		}
		all = append(all, said[agent]...)
	}
	return all, nil // why agents are lost is an error already
}

// told are the devices of an agent, as it tells of them.
func told(agent int, host string, events []trace.Event) []report.Device {
	out := []report.Device{}
	for _, e := range events {
		if e.Kind != trace.KindDevice {
			continue
		}
		if e.What != trace.Fault {
			out = append(out, report.Device{Host: host, Process: agent + 1, Device: e.Unit, Monitored: e.What == trace.Watched, Not: e.Text})
			continue
		}
		if i := slices.IndexFunc(out, func(d report.Device) bool { return d.Device == e.Unit }); i >= 0 {
			out[i].Findings = append(out[i].Findings, e.Text)
		}
	}
	return out
}
