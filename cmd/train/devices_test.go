package main

import (
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

// The list of runs on devices names golden runs and plans that have their bits, on both
// fixtures every axis alone and with the others, all levels of ZeRO, and processes.
func TestHeldRunsAreOfEveryKind(t *testing.T) {
	kinds := map[string]bool{}
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
		if seen[h.name()] {
			t.Errorf("%s: twice", h.name())
		}
		seen[h.name()] = true
		axes := ""
		for _, a := range []struct {
			name string
			size int
		}{{"dp", p.DP}, {"tp", p.TP}, {"pp", p.PP}} {
			if a.size > 1 {
				axes += " " + a.name
			}
		}
		for _, kind := range []string{axes, fmt.Sprintf(" zero=%d", p.Zero), " " + strings.Join(h.flags, " ")} {
			kinds[c.Model.Name+kind] = true
		}
	}
	for _, want := range []string{"", " dp", " tp", " pp", " dp tp", " dp pp", " dp tp pp", " zero=1", " zero=2", " zero=3", " --launch procs"} {
		for _, config := range []string{"nano", "odd"} {
			if !kinds[config+want] {
				t.Errorf("no run of %s is of the kind%s", config, want)
			}
		}
	}
}
