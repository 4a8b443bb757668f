package contracttest

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Long runs the cases of a contract that go on over an epoch, of which there must
// be one, and fails unless each passes the warm-up, is clipped in some step and not
// in another, and begins the text anew.
func (r *Runner) Long(t *testing.T, c *suite.Suite) {
	t.Helper()
	n := 0
	for _, cs := range c.Cases(Options()) {
		if !strings.HasSuffix(cs.Name, suite.Epochs) {
			continue
		}
		n++
		t.Run(cs.Name, func(t *testing.T) {
			e, err := r.Evidence(t, cs)
			if err != nil {
				t.Fatal(err)
			}
			long(t, e.Histories[contract.Test])
		})
	}
	if n == 0 {
		t.Errorf("%s has no case%s", c.ID, suite.Epochs)
	}
}

func long(t *testing.T, h *trace.History) {
	cfg, err := spec.Of(h.Header.Spec)
	if err != nil {
		t.Fatal(err)
	}
	clipped, taken := map[bool]int{}, 0
	for _, e := range h.Ranks[0] {
		if e.Kind == trace.KindScalar && e.What == trace.Coef {
			clipped[e.Value < 1]++
			taken++
		}
	}
	if clipped[true] == 0 || clipped[false] == 0 {
		t.Errorf("%d steps were clipped, %d were not: want some of each", clipped[true], clipped[false])
	}
	if taken < 8 || taken != cfg.Steps || taken <= cfg.Optimizer.Warmup+1 {
		t.Errorf("%d steps of %d were taken, the warm-up has %d: want 8 or more, and some after it", taken, cfg.Steps, cfg.Optimizer.Warmup)
	}
	whole, err := text(cfg.Text)
	if err != nil {
		t.Fatal(err)
	}
	set, err := cfg.Set(whole)
	if err != nil {
		t.Fatal(err)
	}
	switch left := set.Len() % cfg.Sequences; {
	case set.Steps() >= cfg.Steps:
		t.Errorf("an epoch has %d steps, the run %d: want more", set.Steps(), cfg.Steps)
	case left == 0:
		t.Errorf("an epoch has %d sequences, a step %d: want some left over", set.Len(), cfg.Sequences)
	case cfg.LastStep == data.Pad && set.Steps() != set.Len()/cfg.Sequences+1:
		t.Errorf("an epoch has %d steps of %d sequences each: want its last one padded", set.Steps(), cfg.Sequences)
	}
}
