package contracts_test

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// Judging takes no backend where the directory holds the control. Where it does
// not, that is said, and nothing is held for want of it.
func TestOnlyRunsNeedABackend(t *testing.T) {
	parts := launch.Parts{Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{}) }}
	ddp, err := contracts.Find("C-DDP-001")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		record string
		want   contract.Verdict
		noted  bool
	}{{"dp=4", contract.Inconclusive, true}, {"dp=1", contract.Held, false}} {
		if err := record(dir, c.record, parts); err != nil {
			t.Fatal(err)
		}
		r, err := contracts.JudgeHistories(t.Context(), []string{dir}, []*suite.Suite{ddp}, contracts.Options{Oracle: oracle.NewOracle(text)})
		if err != nil {
			t.Fatal(err)
		}
		noted := strings.Contains(strings.Join(r.Notes, "\n"), "no control dp=1 for nano: no backend is given")
		if r.Verdict != c.want || noted != c.noted {
			t.Errorf("with the run of %s recorded too: %s, want %s; notes %q", c.record, r.Verdict, c.want, r.Notes)
		}
	}
}
