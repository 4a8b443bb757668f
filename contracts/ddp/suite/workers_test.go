package suite_test

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	ddp "github.com/lockstep-ml/lockstep/contracts/ddp/suite"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// TestManyWorkers: by default a binary counter of five levels, full and with leaves
// missing on several, is held against shallower ones.
func TestManyWorkers(t *testing.T) {
	seen := map[int]bool{}
	for _, c := range ddp.Suite().Cases(contracttest.Options()) {
		if !strings.HasSuffix(c.Name, "workers") {
			continue
		}
		one, many := *c.Runs[contract.Control].Config, *c.Runs[contract.Test].Config
		all, some := len(one.Plan.RankWorkers(one.Model, 0)), len(many.Plan.RankWorkers(many.Model, 0))
		if all != 32 || shard.Levels(some) >= shard.Levels(all)-1 {
			t.Errorf("%s: the control's rank has %d workers, the run's %d", c.Name, all, some)
		}
		seen[one.Sequences] = true
	}
	if len(seen) != 2 || !seen[32] || !seen[21] {
		t.Errorf("cases of %v working workers, want 32 and 21", seen)
	}
}
