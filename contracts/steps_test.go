package contracts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// TestStepsAreHeededOrNoted: a case of any contract takes the steps that were asked
// for, or a note names it. Fewer than a case needs, as many as are recorded, more.
func TestStepsAreHeededOrNoted(t *testing.T) {
	for _, steps := range []int{1, 20, 21} {
		o := Options{}
		o.Steps = steps
		if err := o.Check(nil); err != nil {
			t.Fatal(err)
		}
		e := &suite.Engine{}
		for _, c := range All() {
			var trials []*suite.Trial
			for _, cs := range o.Cases(c) {
				trials = append(trials, e.Plan(c.ID, cs))
			}
			notes := strings.Join(o.unheeded(c, trials), "\n")
			for _, trial := range trials {
				run := trial.Runs[contract.Test]
				cfg := run.Config
				heeded := cfg != nil && cfg.Steps-run.First == steps
				if named := strings.Contains(notes, fmt.Sprintf("%q takes ", trial.Name)); named == heeded {
					t.Errorf("steps=%d: %s, case %s: heeded %v, noted %v", steps, c.ID, trial.Name, heeded, named)
				}
				if golden := c.ID == "C-DET-001" && strings.HasPrefix(trial.Name, "golden "); golden && heeded != (steps <= 20) {
					t.Errorf("steps=%d: the case %q takes %d: want all that are recorded and asked for", steps, trial.Name, cfg.Steps)
				}
			}
		}
	}
	o := Options{}
	if err := o.Check(nil); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(All(), func(c *suite.Suite) bool { return c.ID == "C-DET-001" })
	for _, cs := range o.Cases(All()[i]) {
		if cfg := cs.Runs[contract.Test].Config; strings.HasPrefix(cs.Name, "golden ") && cfg.Steps != 20 {
			t.Errorf("the case %q takes %d steps by default: want the 20 that are recorded", cs.Name, cfg.Steps)
		}
	}
}
