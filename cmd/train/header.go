package main

import (
	"fmt"
	"io"

	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// header says what is trained, before the first step.
type header struct {
	Event      string   `json:"event"` // "run"
	Model      string   `json:"model"`
	Parameters int64    `json:"parameters"`
	Plan       string   `json:"plan"`
	Ranks      int      `json:"ranks"`
	Backend    string   `json:"backend"`             // with its instruction set
	Simulated  bool     `json:"simulated,omitempty"` // devices are, or those were that computed the checkpoint
	Transport  string   `json:"transport,omitempty"` // of ranks of one process, where that is not its memory
	Data       string   `json:"data"`
	DataHash   string   `json:"data_hash"` // SHA-256
	Seed       uint64   `json:"seed"`
	Steps      int      `json:"steps"`
	Checkpoint string   `json:"checkpoint,omitempty"` // that the run goes on from
	From       int      `json:"from,omitempty"`       // steps before it
	Agents     [][]int  `json:"agents,omitempty"`     // the ranks of each, where they are processes
	Hosts      []string `json:"hosts,omitempty"`      // of the agents, where they listen, if there may be several
	Notes      []string `json:"notes,omitempty"`
	started    string   // who has started the agents, if another
}

// newHeader describes a valid run on a backend of a name.
func newHeader(c spec.Config, backend string) header {
	return header{Event: "run", Model: c.Model.Name, Parameters: c.Model.Params(), Plan: c.Plan.String(), Ranks: c.Plan.World(), Backend: backend,
		Data: c.Text, DataHash: c.TextHash, Seed: c.Seed, Steps: c.Steps, Notes: notes(c)}
}

// text prints a line, and one for each note.
func (h *header) text(w io.Writer) {
	ranks := "1 rank"
	if h.Ranks != 1 {
		ranks = fmt.Sprintf("%d ranks", h.Ranks)
	}
	fmt.Fprintf(w, "%s of %d parameters, plan %s on %s, backend %s, data %s (sha256 %.12s), seed %d", h.Model, h.Parameters, h.Plan, ranks, h.Backend, h.Data, h.DataHash, h.Seed)
	if h.Checkpoint != "" {
		fmt.Fprintf(w, ", from %s (step %d)", h.Checkpoint, h.From)
	}
	fmt.Fprintln(w)
	if h.Transport != "" {
		fmt.Fprintf(w, "transport %s\n", h.Transport)
	}
	if h.Agents != nil {
		fmt.Fprintf(w, "processes%s: %s\n", h.started, procs.Seating(h.Agents))
	}
	for _, host := range h.Hosts {
		fmt.Fprintf(w, "host %s\n", host)
	}
	for _, n := range h.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}

// notes say what may surprise of a valid configuration.
func notes(c spec.Config) (out []string) {
	if !c.Plan.Exact(c.Model) {
		why := fmt.Sprintf("dp=%d does not divide groups.data=%d of %s", c.Plan.DP, c.Model.Groups.Data, c.Model.Name)
		if c.Plan.Comm != names.Tree {
			why = fmt.Sprintf("comm=%s adds in an order of its own", c.Plan.Comm)
		}
		out = append(out, fmt.Sprintf("the bits are not the canonical ones: %s; the fingerprint is this plan's own", why))
	}
	if o := c.Optimizer; o.Horizon > 0 && c.Steps > o.Horizon {
		out = append(out, fmt.Sprintf("the learning rate is %g from step %d on: the schedule's horizon is %d (--horizon, --min-lr)", o.MinLR, o.Horizon+1, o.Horizon))
	}
	return out
}
