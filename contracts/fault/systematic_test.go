package fault_test

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// Every family has faults, IDs are unique, and the same faults come each time.
func TestGenerated(t *testing.T) {
	make := func() []fault.Generated {
		all, err := fault.Generate(t.Context(), launch.Parts{Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all, again := make(), make()
	if len(all) != len(again) {
		t.Fatalf("%d faults, then %d", len(all), len(again))
	}
	seen, families := map[string]bool{}, map[fault.Family]int{}
	for i, g := range all {
		if seen[g.ID] || g.ID != again[i].ID || g.Says != again[i].Says {
			t.Errorf("fault %s is there twice, or not each time", g.ID)
		}
		seen[g.ID] = true
		families[g.Family]++
	}
	t.Log(families)
	for _, f := range fault.Families() {
		if families[f.Family] == 0 {
			t.Errorf("no fault of family %s", f.Family)
		}
	}
	ids := ""
	for id := range seen {
		ids += id + "\n"
	}
	for _, want := range []string{"all-reduce:", "all-reduce-int:", "reduce-scatter:", "all-gather:", "broadcast:", "message:",
		"MatMulTN", "ColumnSum", "RMSNormGrad", "EmbeddingGrad", ":group", ":reduction"} {
		if !strings.Contains(ids, want) {
			t.Errorf("no fault of %q", want)
		}
	}
}
