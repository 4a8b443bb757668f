package collective

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/names"
)

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
