package suite

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/kern"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/drill"
)

// TestEveryKernelInOneElement: whichever kernel sets one bit wrong, in its last
// output alone and only where that is longer than a vector, its clause says so and
// names it.
func TestEveryKernelInOneElement(t *testing.T) {
	var names []string
	for _, f := range kern.Families() {
		for _, k := range f.Kernels {
			switch k {
			case drill.Memory, drill.Misuse, "SumSquares", "Hash", "HashChanged": // they set no tensor
			default:
				names = append(names, k)
			}
		}
	}
	be, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range race.Some(4, names) {
		parts := launch.Parts{Backend: func(int) (kernels.Backend, error) { return be, nil }}
		spoil(k, func(be kernels.Backend, outputs []kernels.Tensor) {
			if x := outputs[len(outputs)-1]; x.Len() > 17 {
				flip(be, x, x.Rows/2, x.Cols-1)
			}
		})(&parts)
		h, err := drilling{kern.Spec{Kernels: []string{k}, Seed: 1, Level: 1}, 1}.run(t.Context(), suite.Env{Parts: parts})
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, r := range contracttest.Judge(kern.Contract(), []contract.Evidence{{Case: k, Histories: map[contract.Role]*trace.History{contract.Test: h}}}) {
			for _, f := range r.Findings {
				found++
				if f.Tensor != k || r.Clause.ID == keptClause {
					t.Errorf("%s wrong: %s about %s: %s", k, r.Clause.ID, f.Tensor, f.Message)
				}
			}
		}
		if found == 0 {
			t.Errorf("%s: an element of its last output is wrong, and nothing is said", k)
		}
	}
}
