// Package transcript tests the clauses of a contract on histories written by
// hand, without training: a file holds a few events in a terse form and what
// judging them must come to, verdicts and findings (the tests of etcd's raft;
// github.com/cockroachdb/datadriven). go test -rewrite writes what it came to
// into the files: read the diff.
//
// The commands of a file, each with its input up to "----", are:
//
//	run ROLE          begins the history of a role (test, control, ...): the
//	                  input changes the preset configuration nano, one setting
//	                  a line: preset NAME, plan PLAN, steps N, sequences N,
//	                  a size of the model as in its JSON (layers N, seq_len N),
//	                  workers N and tensor N (of its Groups), tied, digests
//	                  (Recording.Digests), optimizer NAME, and the optimizer's
//	                  numbers as in its JSON (lr X, horizon N)
//	drill ROLE world=N [repeats=N]
//	                  begins the history of a drill of communicators, of level
//	                  0 and seed 1, in which every operation gave its right
//	                  result and every misfit was refused on all ranks
//	events ROLE [ranks=(0,1)]
//	                  adds the input's events, one a line, to the history of
//	                  every rank that is named, or of all
//	change ROLE [ranks=(0,1)]
//	                  sets fields of events: in a line, those behind "->" of
//	                  the events that have all fields before it
//	drop ROLE [ranks=(0,1)]
//	                  takes away the events that have all fields of one of
//	                  the input's lines
//	cut ROLE [ranks=(0,1)]
//	                  says that the histories of the ranks are cut off
//	judge [clauses=(1,2)]
//	                  judges the histories as one case; those that are not cut
//	                  off, and have no end, end with the last step
//
// An event is its kind and its fields, named as in JSON: "comm step=0
// op=all-reduce group=dp ranks=0,1 unit=embed count=12", "unmoved
// ranges=0-2,7-9". A digest is its text, or any other word, which stands for a
// digest of its own, with "!n" where n elements are not finite. A flag (once,
// overlap) is its name. Text with blanks is quoted. "{a,b}" in a line makes two of
// it, one with a and one with b. Every event must have the form that the format of
// histories gives its kind.
package transcript

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Run tests a contract on the transcripts in a file or directory.
func Run(t *testing.T, c *contract.Contract, path string) {
	datadriven.Walk(t, path, func(t *testing.T, path string) {
		s := &script{contract: c, runs: map[contract.Role]*trace.History{}, cut: map[contract.Role][]int{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.do(d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

// script is the state of one file.
type script struct {
	contract *contract.Contract
	runs     map[contract.Role]*trace.History
	cut      map[contract.Role][]int // ranks whose histories are cut off
}

// do obeys one command.
func (s *script) do(d *datadriven.TestData) (string, error) {
	if d.Cmd == "judge" {
		return s.judge(d)
	}
	if len(d.CmdArgs) == 0 || len(d.CmdArgs[0].Vals) > 0 {
		return "", fmt.Errorf("%s: needs a role", d.Cmd)
	}
	role := contract.Role(d.CmdArgs[0].Key)
	switch d.Cmd {
	case "run":
		return s.begin(role, d.Input)
	case "drill":
		return s.drill(role, d)
	}
	h := s.runs[role]
	if h == nil {
		return "", fmt.Errorf("%s: no run %q", d.Cmd, role)
	}
	ranks, err := ranksOf(d, h.Header.World)
	if err != nil {
		return "", err
	}
	switch d.Cmd {
	case "events":
		return add(h, ranks, expand(lines(d.Input)))
	case "change":
		return change(h, ranks, expand(lines(d.Input)))
	case "drop":
		return drop(h, ranks, expand(lines(d.Input)))
	case "cut":
		s.cut[role] = append(s.cut[role], ranks...)
		return fmt.Sprintf("%d cut off\n", len(ranks)), nil
	}
	return "", fmt.Errorf("no command %q: known are run, drill, events, change, drop, cut, judge", d.Cmd)
}

// lines are the lines of a command's input without comments.
func lines(input string) []string {
	var out []string
	for l := range strings.Lines(input) {
		if l = strings.TrimSpace(l); l != "" && l[0] != '#' {
			out = append(out, l)
		}
	}
	return out
}

// expand writes lines with braces out, the last braces varying fastest.
func expand(lines []string) (out []string) {
	for _, l := range lines {
		before, rest, open := strings.Cut(l, "{")
		list, after, closed := strings.Cut(rest, "}")
		if !open || !closed {
			out = append(out, l)
			continue
		}
		for word := range strings.SplitSeq(list, ",") {
			out = append(out, expand([]string{before + word + after})...)
		}
	}
	return out
}

func ranksOf(d *datadriven.TestData, world int) ([]int, error) {
	arg, ok := d.Arg("ranks")
	var out []int
	if !ok {
		for r := range world {
			out = append(out, r)
		}
	}
	for _, v := range arg.Vals {
		r, err := strconv.Atoi(v)
		if err != nil || r < 0 || r >= world {
			return nil, fmt.Errorf("rank %q: the world has %d ranks", v, world)
		}
		out = append(out, r)
	}
	return out, nil
}

// begin begins a run.
func (s *script) begin(role contract.Role, input string) (string, error) {
	cfg, err := spec.Preset("nano")
	if err != nil {
		return "", err
	}
	for _, l := range lines(input) {
		if err := set(&cfg, l); err != nil {
			return "", fmt.Errorf("%s: %w", l, err)
		}
	}
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	h := s.history(role, trace.Header{World: cfg.Plan.World(), Plan: cfg.Plan.String(), Model: cfg.Model.Name, Spec: cfg.Recorded()})
	return fmt.Sprintf("%s of %s, ranks: %d\n", cfg.Plan, cfg.Model.Name, h.Header.World), nil
}

// history begins the history of a role, without events.
func (s *script) history(role contract.Role, header trace.Header) *trace.History {
	header.Schema, header.Arithmetic, header.Backend = trace.Schema, kernels.Arithmetic, "none"
	h := &trace.History{Ranks: map[int][]trace.Event{}, Header: header}
	for r := range h.Header.World {
		h.Ranks[r] = nil
	}
	s.runs[role] = h
	delete(s.cut, role)
	return h
}

// set changes one setting of a configuration.
func set(cfg *spec.Config, line string) (err error) {
	name, value, _ := strings.Cut(line, " ")
	value = strings.TrimSpace(value)
	m, o := &cfg.Model, &cfg.Optimizer
	numbers := map[string]*int{"steps": &cfg.Steps, "sequences": &cfg.Sequences, "workers": &m.Groups.Data, "tensor": &m.Groups.Tensor,
		"vocab": &m.Vocab, "hidden": &m.Hidden, "layers": &m.Layers, "heads": &m.Heads, "kv_heads": &m.KVHeads, "head_dim": &m.HeadDim,
		"intermediate": &m.Intermediate, "seq_len": &m.SeqLen, "warmup": &o.Warmup, "horizon": &o.Horizon}
	reals := map[string]*float64{"lr": &o.LR, "beta1": &o.Beta1, "beta2": &o.Beta2, "eps": &o.Eps, "momentum": &o.Momentum,
		"decay": &o.Decay, "clip": &o.Clip, "min_lr": &o.MinLR}
	switch at, x := numbers[name], reals[name]; {
	case at != nil:
		*at, err = strconv.Atoi(value)
	case x != nil:
		*x, err = strconv.ParseFloat(value, 64)
	case name == "preset":
		*cfg, err = spec.Preset(value)
	case name == "plan":
		cfg.Plan, err = plan.Parse(value)
	case name == "optimizer":
		o.Name = value
	case name == "tied" && value == "":
		m.Tied = true
	case name == "digests" && value == "":
		cfg.Recording.Digests = true
	default:
		err = fmt.Errorf("no such setting")
	}
	return err
}

// add records events on ranks.
func add(h *trace.History, ranks []int, lines []string) (string, error) {
	n := 0
	for _, rank := range ranks {
		header := h.Header
		header.Rank = rank
		for _, l := range lines {
			e, _, err := Parse(l)
			if err != nil {
				return "", fmt.Errorf("%s: %w", l, err)
			}
			e.Rank = rank
			if err := header.Admits(&e); err != nil {
				return "", fmt.Errorf("%s: %w", l, err)
			}
			h.Ranks[rank] = append(h.Ranks[rank], e)
			n++
		}
	}
	return fmt.Sprintf("%d events\n", n), nil
}

// change sets fields of the events that a line matches.
func change(h *trace.History, ranks []int, lines []string) (string, error) {
	n := 0
	for _, l := range lines {
		before, after, ok := strings.Cut(l, "->")
		pattern, fields, err := Parse(before)
		if err != nil || !ok {
			return "", fmt.Errorf("%s: want fields, -> and fields: %w", l, err)
		}
		to, set, err := Parse(string(pattern.Kind) + " " + after)
		if err != nil {
			return "", fmt.Errorf("%s: %w", l, err)
		}
		for _, rank := range ranks {
			header := h.Header
			header.Rank = rank
			for i := range h.Ranks[rank] {
				e := &h.Ranks[rank][i]
				if !matches(*e, pattern, fields) {
					continue
				}
				assign(e, to, set)
				if err := header.Admits(e); err != nil {
					return "", fmt.Errorf("%s: %w", l, err)
				}
				n++
			}
		}
	}
	return fmt.Sprintf("%d events changed\n", n), nil
}

// drop takes away the events that a line matches.
func drop(h *trace.History, ranks []int, lines []string) (string, error) {
	n := 0
	for _, l := range lines {
		pattern, fields, err := Parse(l)
		if err != nil {
			return "", fmt.Errorf("%s: %w", l, err)
		}
		for _, rank := range ranks {
			before := len(h.Ranks[rank])
			h.Ranks[rank] = slices.DeleteFunc(h.Ranks[rank], func(e trace.Event) bool { return matches(e, pattern, fields) })
			n += before - len(h.Ranks[rank])
		}
	}
	return fmt.Sprintf("%d events fewer\n", n), nil
}
