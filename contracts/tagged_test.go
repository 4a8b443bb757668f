package contracts

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// TestNamesHideNothing: a broken run that calls itself a case which its contract does
// not have, or which is another run, is judged by all contracts that are about it, and
// named. So is one whose header contradicts its specification.
func TestNamesHideNothing(t *testing.T) {
	cfg := on(t, "nano", "dp=2", false)
	cfg.Steps, cfg.Seed = 2, 77
	cfg.Recording = spec.Recording{Digests: true, Workers: true}
	parts := launch.Parts{Backend: good}
	fault.OnUpdate(func(u *fault.Update) {
		u.Step.LR *= 1.01
		u.Do()
	})(&parts)
	out, err := launch.Local(t.Context(), cfg, data.Default(), parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name, tag, plan string
		want            contract.Verdict
		left            string
	}{
		{"as it is", "", "", contract.Violated, ""},
		{"a case that is none", "C-DATA-001/x/test", "", contract.Violated, `"x" of C-DATA-001`},
		{"a case of another run", "C-DDP-001/nano dp=4/test", "", contract.Violated, `"nano dp=4" of C-DDP-001`},
		{"a contract that is none", "C-NONE-001/x/test", "", contract.Violated, `"C-NONE-001"`},
		{"another plan", "", "dp=4", contract.Inconclusive, `its header says plan "dp=4", and "dp=2`},
	} {
		h := *out.History
		h.Header.Case = x.tag
		if x.plan != "" {
			h.Header.Plan = x.plan
		}
		dir := t.TempDir()
		if err := h.Save(dir); err != nil {
			t.Fatal(err)
		}
		r := judged(t, All(), dir)
		if r.Verdict != x.want || x.left != "" && !has(r.LeftOut, x.left) {
			t.Errorf("%s: %s, left out %q", x.name, r.Verdict, r.LeftOut)
		}
	}
}
