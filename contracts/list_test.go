package contracts

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
)

func TestTheContractsAreComplete(t *testing.T) {
	if err := Validate(All()); err != nil {
		t.Error(err)
	}
}

// TestLevelsAreNested: all cases of a level are in the next, by name, and none of
// them with fewer steps.
func TestLevelsAreNested(t *testing.T) {
	for _, c := range All() {
		below := map[string]suite.Case{}
		for level := 1; level <= maxLevel; level++ {
			here := map[string]suite.Case{}
			for _, cs := range c.Cases(suite.Options{Level: level, Text: data.Default()}) {
				here[cs.Name] = cs
			}
			for name, was := range below {
				is, ok := here[name]
				if !ok {
					t.Errorf("%s: level %d lacks %q of level %d", c.ID, level, name, level-1)
					continue
				}
				if a, b := was.Runs[contract.Test].Config, is.Runs[contract.Test].Config; a != nil && b.Steps < a.Steps {
					t.Errorf("%s: %q takes %d steps at level %d, %d below", c.ID, name, b.Steps, level, a.Steps)
				}
			}
			below = here
		}
	}
}

func TestFindIgnoresLetterCase(t *testing.T) {
	for _, c := range All() {
		for _, id := range []string{c.ID, strings.ToLower(c.ID)} {
			if got, err := Find(id); err != nil || got.ID != c.ID {
				t.Errorf("%s: %v", id, err)
			}
		}
		if _, err := Find(c.ID + "0"); err == nil || !strings.Contains(err.Error(), c.ID) {
			t.Errorf("%s0: %v, want the known IDs", c.ID, err)
		}
	}
	if _, err := Find(""); err == nil {
		t.Error("an empty ID is found")
	}
}
