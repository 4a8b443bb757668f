package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	norm "github.com/lockstep-ml/lockstep/contracts/norm/suite"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// The long case is what its name and its configuration promise: steps are clipped and
// not, before and after the horizon, skipped in a row and apart, in many epochs.
func TestLongCase(t *testing.T) {
	var r contracttest.Runner
	cs, ok := norm.Suite().Find(contracttest.Options(), "nano dp=2 of 72 steps")
	if !ok {
		t.Fatal("no such case")
	}
	e, err := r.Evidence(t, cs)
	if err != nil {
		t.Fatal(err)
	}
	cfg := cs.Runs[contract.Test].Config
	clipped, whole, skipped, row, last := map[bool]int{}, map[bool]int{}, 0, 0, -2
	began, first := 0, int64(-1) // epochs
	for ev := range e.Histories[contract.Control].All {
		late := ev.Step > cfg.Optimizer.Horizon+9
		switch {
		case ev.Kind == trace.KindSkip:
			if skipped++; ev.Step == last+1 {
				row++
			}
			last = ev.Step
		case ev.Kind == trace.KindScalar && ev.What == trace.Coef && ev.Value < 1:
			clipped[late]++
		case ev.Kind == trace.KindScalar && ev.What == trace.Coef:
			whole[late]++
		case ev.Kind == trace.KindData && len(ev.IDs) > 0:
			if first < 0 {
				first = ev.IDs[0]
			}
			if ev.IDs[0] == first {
				began++
			}
		}
	}
	if min(clipped[true], clipped[false], whole[true], whole[false]) < 3 || skipped < 9 || row < 3 || began < 6 {
		t.Errorf("clipped %v, not clipped %v (by whether the horizon is past), %d skipped, %d of them after another, %d epochs", clipped, whole, skipped, row, began)
	}
	if taken := cfg.Steps - skipped; taken < 2*cfg.Optimizer.Horizon+10 {
		t.Errorf("%d steps taken, the horizon is %d", taken, cfg.Optimizer.Horizon)
	}
	t.Logf("clipped %v, not clipped %v, %d skipped, %d epochs", clipped, whole, skipped, began)
}
