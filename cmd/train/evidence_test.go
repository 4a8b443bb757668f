package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// judged trains with the arguments, and judges the history by all contracts.
func judged(t *testing.T, args ...string) (verdict contract.Verdict, ids, doubts []string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	if code, _, stderr := call(t.Context(), append(args, "--history", dir)...); code != cli.OK || stderr != "" {
		t.Fatalf("%q: exit %d, stderr %q", args, code, stderr)
	}
	open, err := cli.OpenBackend("ref", cli.Devices{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := contracts.JudgeHistories(t.Context(), []string{dir}, contracts.All(), contracts.Options{
		Options: suite.Options{Backend: "ref"}, Parts: launch.Parts{Backend: open}, Oracle: oracle.NewOracle(cli.Text)})
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	for _, c := range r.Contracts {
		ids = append(ids, c.ID)
		for _, cl := range c.Clauses {
			doubts = append(doubts, cl.Doubts...)
		}
	}
	return r.Verdict, ids, doubts
}

func TestHistoriesSufficeForEveryContractOfTheirPlan(t *testing.T) {
	const ddp, zero, tp, pipe, norm, text = "C-DDP-001", "C-ZERO-001", "C-TP-001", "C-PIPE-001", "C-NORM-001", "C-DATA-001"
	for _, c := range []struct {
		config, plan string
		want         []string
	}{
		{"nano", "dp=2,tp=2,pp=2,zero=3", []string{ddp, zero, tp, pipe, norm, text}},
		{"nano", "dp=3", []string{ddp, text}},
		{"nano", "dp=3,zero=3", []string{ddp, zero, text}},
		{"nano", "tp=2,microbatches=16", []string{tp, norm, text}},
		{"odd", "dp=4,comm=ring", []string{ddp, text}},
		{"odd", "tp=4,vocab=parallel", []string{tp, norm, text}},
		{"odd", "pp=2,schedule=interleaved,virtual=2", []string{pipe, norm, text}},
	} {
		verdict, ids, doubts := judged(t, "--config", c.config, "--plan", c.plan, "--steps", "1")
		if verdict != contract.Held || !slices.Equal(ids, c.want) {
			t.Errorf("%s %s: %v are %s, want %v; %q", c.config, c.plan, ids, verdict, c.want, doubts)
		}
	}
}

func TestEvidenceIsBounded(t *testing.T) {
	for _, c := range []struct {
		plan          string
		steps         int
		taps, capture bool
		left          string
	}{
		{plan: "dp=4", steps: 1 << 20},
		{plan: "dp=3", steps: 10, capture: true},
		{plan: "dp=3", steps: 1000, left: "elements are not recorded"},
		{plan: "dp=3,zero=1", steps: 1000},
		{plan: "tp=2", steps: 10, taps: true},
		{plan: "tp=2", steps: spec.MaxSteps, left: "digests of activations are not recorded"},
		{plan: "dp=3,tp=2", steps: 10, taps: true, capture: true},
	} {
		cfg, err := spec.Preset("nano")
		if err == nil {
			cfg.Plan, err = plan.Parse(c.plan)
		}
		cfg.Steps = c.steps
		if err == nil {
			err = cfg.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		e, left := evidence(cfg, false)
		if e.Taps != c.taps || e.Capture != c.capture || !e.Digests || !e.Workers {
			t.Errorf("%s of %d steps: %+v", c.plan, c.steps, e)
		}
		if (len(left) > 0) != (c.left != "") || !strings.Contains(strings.Join(left, "\n"), c.left) {
			t.Errorf("%s of %d steps leaves %q, want %q", c.plan, c.steps, left, c.left)
		}
	}
}
