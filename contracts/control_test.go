package contracts

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	tp "github.com/lockstep-ml/lockstep/contracts/tp/suite"
	zero "github.com/lockstep-ml/lockstep/contracts/zero/suite"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// on is a preset on a plan, validated.
func on(t *testing.T, config, plans string, taps bool) spec.Config {
	t.Helper()
	cfg, err := spec.Preset(config)
	if err == nil {
		cfg.Plan, err = plan.Parse(plans)
	}
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.Recording = spec.Recording{Digests: true, Workers: true, Taps: taps}
	return cfg
}

func TestControlsFitTheJudgingContract(t *testing.T) {
	for _, c := range []struct {
		of         *suite.Suite
		test, have string
		taps, fits bool
	}{
		{zero.Suite(), "dp=4,zero=3", "dp=4", false, true},
		{zero.Suite(), "dp=4,zero=3", "dp=4,microbatches=4", false, true},
		{zero.Suite(), "dp=2,tp=2,pp=2,zero=3,shard=tensors", "dp=2,tp=2,pp=2", true, true},
		{zero.Suite(), "dp=4,zero=3", "dp=1", false, false},
		{zero.Suite(), "dp=4,zero=3", "dp=2", false, false},
		{zero.Suite(), "dp=4,zero=3", "dp=4,zero=1", false, false},
		{tp.Suite(), "dp=2,tp=2", "dp=1", false, true},
		{tp.Suite(), "dp=2,tp=2", "dp=1,microbatches=16", false, true},
		{tp.Suite(), "dp=2,tp=2", "dp=1", true, true},
		{tp.Suite(), "dp=2,tp=2", "dp=1,microbatches=16", true, false}, // activations are those of a micro-batch
		{tp.Suite(), "dp=2,tp=2,microbatches=8", "dp=1,microbatches=16", true, true},
		{tp.Suite(), "dp=2,tp=2", "dp=2", false, false},
	} {
		want := controlOf(c.of, on(t, "nano", c.test, c.taps))
		if got := samePlan(on(t, "nano", c.have, c.taps), want); got != c.fits {
			t.Errorf("%s is a control of %s for %s: %v", c.have, c.test, c.of.ID, got)
		}
		if want.Recording.Taps != c.taps {
			t.Errorf("%s: activations of the control: %v", c.test, want.Recording.Taps)
		}
	}
}

func TestLongControlsKeepNoElements(t *testing.T) {
	cfg := on(t, "nano", "tp=2", false)
	for steps, want := range map[int]bool{2: true, spec.MaxSteps: false} {
		cfg.Steps = steps
		if got := controlOf(tp.Suite(), cfg).Recording.Capture; got != want {
			t.Errorf("%d steps: elements are kept: %v", steps, got)
		}
	}
}
