package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/golden"
)

// held is a run that must end with the line of a golden run: a line of testdata/devices.txt.
type held struct {
	golden golden.Variant
	steps  int
	plan   string
	flags  []string // besides
}

// name is the line of the list, for subtests.
func (h held) name() string {
	return strings.Join(append([]string{h.golden.Name, h.plan}, h.flags...), " ")
}

// line is what the golden run has after the steps.
func (h held) line() (string, error) {
	g, err := golden.LoadFingerprints(h.golden.Name)
	if err != nil || h.steps < 1 || h.steps > len(g.Steps) {
		return "", fmt.Errorf("%s has no step %d: %w", h.golden.Name, h.steps, err)
	}
	return "fingerprint " + g.Steps[h.steps-1].String(), nil
}

// heldRuns reads the list.
func heldRuns(t *testing.T) (out []held) {
	t.Helper()
	text, err := os.ReadFile("testdata/devices.txt")
	if err != nil {
		t.Fatal(err)
	}
	variants, err := golden.Variants()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		v := slices.IndexFunc(variants, func(v golden.Variant) bool { return v.Name == f[0] })
		if v < 0 || len(f) < 3 {
			t.Fatalf("%q: want a golden run, steps, a plan", line)
		}
		steps, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, held{variants[v], steps, f[2], f[3:]})
	}
	return out
}

// kinds says what a run is an example of: its golden run, its axes and their sizes, whatever
// else its plan names and every flag with its value, alone and with the axes, and where it
// has none of these that it is plain.
func (h held) kinds(p plan.Plan) []string {
	var axes, rest []string
	for part := range strings.SplitSeq(h.plan, ",") {
		switch name, size, _ := strings.Cut(part, "="); {
		case !slices.Contains([]string{"dp", "tp", "pp"}, name):
			rest = append(rest, part)
		case size != "1":
			axes = append(axes, name)
		}
	}
	for flag := range slices.Chunk(h.flags, 2) {
		rest = append(rest, strings.Join(flag, " "))
	}
	on := cmp.Or(strings.Join(axes, "*"), "one rank")
	out := append(strings.Split(h.plan, ","), h.golden.Name, on, fmt.Sprintf("zero=%d", p.Zero))
	for _, what := range rest {
		out = append(out, what, on+" "+what)
	}
	switch {
	case len(rest) == 0:
		out = append(out, "plain "+on)
	case len(rest) == 1 && p.Zero > 0:
		out = append(out, "plain "+on+" "+rest[0])
	}
	return out
}

// wanted are the kinds of which the list has a run: of both fixtures, and of each.
var wanted = map[string][]string{
	"nano odd": {
		"plain one rank", "plain dp", "plain dp*tp", "tp", "pp", "dp*pp", "dp*tp*pp", "dp=2", "dp=4", "tp=2", "tp=4", "pp=2",
		"zero=0", "dp zero=1", "plain dp zero=2", "plain dp zero=3", "dp*tp zero=2", "tp vocab=parallel",
		"schedule=interleaved", "virtual=2", "dp --launch procs",
	},
	"nano": {
		"nano-adamw-untied", "nano-adamw-tied", "plain tp", "plain pp", "plain dp*pp", "tp*pp", "dp=8", "pp=4",
		"microbatches=2", "microbatches=16", "schedule=gpipe", "comm=ring", "shard=round-robin", "shard=balanced",
		"plain dp zero=1", "plain dp*tp zero=2", "dp*tp zero=3", "plain dp*pp zero=3", "plain dp*tp*pp zero=1",
		"dp --transport tcp", "dp*tp --transport shm", "dp*tp*pp --transport tcp",
		"dp*tp --launch procs", "dp*tp*pp --launch procs", "--agents 3",
	},
	"odd": {"odd-adamw-untied", "odd-adamw-tied", "plain tp", "plain pp", "pp=3", "shard=contiguous", "dp*pp zero=1"},
}

// The list of runs on devices names golden runs and plans that have their bits, and has one
// of every kind that is wanted.
func TestHeldRunsAreOfEveryKind(t *testing.T) {
	has := map[string]bool{}
	seen := map[string]bool{}
	for _, h := range heldRuns(t) {
		c := h.golden.Config
		p, err := plan.Parse(h.plan)
		if err == nil {
			err = p.Validate(c.Model, c.Sequences)
		}
		if _, e := h.line(); err != nil || e != nil || !p.Exact(c.Model) || c.Optimizer.Name != "adamw" {
			t.Errorf("%s: %v, %v, exact %v, %s", h.name(), err, e, p.Exact(c.Model), c.Optimizer.Name)
		}
		if h.steps < 2 {
			t.Errorf("%s: %d steps; what a first step leaves behind is used by a second", h.name(), h.steps)
		}
		if seen[h.name()] {
			t.Errorf("%s: twice", h.name())
		}
		seen[h.name()] = true
		for _, kind := range h.kinds(p) {
			has[c.Model.Name+" "+kind] = true
		}
	}
	for configs, kinds := range wanted {
		for _, config := range strings.Fields(configs) {
			for _, kind := range kinds {
				if !has[config+" "+kind] {
					t.Errorf("no run of %s is of the kind %s", config, kind)
				}
			}
		}
	}
}
