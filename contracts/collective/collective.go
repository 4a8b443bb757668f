// Package collective is contract C-COMM-001: every collective of every communicator
// gives the right result.
package collective

import (
	_ "embed" // explain.txt
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/names"
)

// Contract is C-COMM-001.
func Contract() *contract.Contract {
	c := func(n, says string, class contract.Class, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-COMM-001." + n, Says: says, Class: class, Reads: "drill", Phase: contract.Drilled, Check: check}
	}
	return &contract.Contract{
		ID:        "C-COMM-001",
		Title:     "Collectives give the right result",
		Statement: "Every collective of every communicator gives the right result: for all sizes, sub-groups and roots, in place and out of place, time after time, on every rank.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Inputs that add exactly in any order give the right result in every operation.", contract.Exact, each(right)),
			c("2", "Sums are the canonical tree over the ranks, bit for bit, signed zeros included.", contract.Exact, each(ordered)),
			c("3", "Vectors that are empty, that the ranks do not divide, and parts of unequal size give the right result.", contract.Exact, each(sized)),
			c("4", "Sub-groups, and every root of a broadcast, give the right result.", contract.Exact, each(grouped)),
			c("5", "In place and out of place give the right result, and nothing beside it is written.", contract.Exact, each(placed)),
			c("6", "The same operations on the same communicators give the same bits again.", contract.Exact, with(repeated)),
			c("7", "All ranks get the same result, and operations that do not fit are refused on every rank by an error that says so.", contract.Exact, with(agreed)),
		},
	}
}

//go:embed explain.txt
var doc string

// Spec is what a drill's history has in its header: it determines the drill.
type Spec struct {
	World     int             `json:"world"`
	Algorithm names.Algorithm `json:"algorithm"`
	Seed      uint64          `json:"seed"`
	Level     int             `json:"level"`   // of package drill
	Repeats   int             `json:"repeats"` // how often the drill runs on the same communicators
}

// maxWorld and maxRepeats bound what a history may claim.
const (
	maxWorld   = 1 << 10
	maxRepeats = 1 << 10
)

// Check refuses what no drill has.
func (s Spec) Check() error {
	switch {
	case s.World < 1 || s.World > maxWorld:
		return fmt.Errorf("drill of %d ranks: must be from 1 to %d", s.World, maxWorld)
	case s.Repeats < 1 || s.Repeats > maxRepeats:
		return fmt.Errorf("drill repeated %d times: must be from 1 to %d", s.Repeats, maxRepeats)
	case s.Level < 0 || s.Level > 2:
		return fmt.Errorf("drill of level %d: must be from 0 to 2", s.Level)
	case s.Algorithm != names.Tree && s.Algorithm != names.Ring && s.Algorithm != names.Star:
		return fmt.Errorf("drill of algorithm %q: known are %s, %s, %s", s.Algorithm, names.Tree, names.Ring, names.Star)
	}
	return nil
}

// Mismatch is What of the events of operations that do not fit.
const Mismatch = "mismatch"
