package contracts

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/kernels"
)

// posing is a backend of another name.
type posing struct {
	kernels.Backend
	name string
}

func (p posing) Name() string { return p.name }

// oneSimulated has real devices, but for one rank.
func oneSimulated(which int) func(int) (kernels.Backend, error) {
	return func(rank int) (kernels.Backend, error) {
		b, err := good(rank)
		if name := "cuda-sm_90"; rank == which {
			b = posing{b, name + "-" + kernels.SimulatedMark}
		} else {
			b = posing{b, name}
		}
		return b, err
	}
}

// TestOneSimulatedRankMarksTheReport: whichever rank of whichever run was on a simulated
// device, in whatever role, recorded, made here, or left out, the report says so; where
// none was, it does not.
func TestOneSimulatedRankMarksTheReport(t *testing.T) {
	const simulated = "cuda-sm_90-simulated"
	real := oneSimulated(-1)
	for _, x := range []struct {
		name   string
		runs   []run
		here   func(int) (kernels.Backend, error)
		says   string
		want   contract.Verdict
		marked bool
	}{
		{"none", []run{{plan: "dp=4", seed: 1, backend: real}}, real, "cuda-sm_90", contract.Held, false},
		{"rank 0", []run{{plan: "dp=4", seed: 1, backend: oneSimulated(0)}}, real, simulated, contract.Held, true},
		{"rank 2", []run{{plan: "dp=4", seed: 1, backend: oneSimulated(2)}}, real, "cuda-sm_90, " + simulated, contract.Held, true},
		{"the last rank", []run{{plan: "dp=4", seed: 1, backend: oneSimulated(3)}}, real, "cuda-sm_90, " + simulated, contract.Held, true},
		{"the recorded control", []run{{plan: "dp=4", seed: 1, backend: real}, {plan: "dp=1", seed: 1, backend: oneSimulated(0)}}, real, "cuda-sm_90, " + simulated, contract.Held, true},
		{"the control made here", []run{{plan: "dp=4", seed: 1, backend: good}}, oneSimulated(0), "cpu-", contract.Held, true},
		{"a run that is left out", []run{{plan: "dp=4", seed: 1, backend: oneSimulated(1), header: tagged("C-FOO-001/x/test")}}, real, "cuda-sm_90, " + simulated, contract.Inconclusive, true},
	} {
		root := t.TempDir()
		for i, r := range x.runs {
			r.saves(t, filepath.Join(root, string(rune('a'+i))))
		}
		r, err := JudgeHistories(t.Context(), []string{root}, some(t)[:1], Options{Parts: launch.Parts{Backend: x.here}, Oracle: oracle.NewOracle(defaultText)})
		if err != nil {
			t.Fatal(err)
		}
		if r.Environment.Simulated() != x.marked || !strings.HasPrefix(r.Environment.Backend, x.says) || r.Verdict != x.want {
			t.Errorf("%s: backend %q, %s; want %q, marked %v, %s", x.name, r.Environment.Backend, r.Verdict, x.says, x.marked, x.want)
		}
	}
}
