package suite

import (
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
)

// Any stands for a rank or step that a Place does not fix.
const Any = -2

// Place is where a fault must be named.
type Place struct {
	Rank int // world rank; Any where the fault is on all of them or no one rank can be told
	Step int // -1 before the first; Any where the fault has none
	// Naming is a part of the name of a tensor, or of the message about an operation,
	// that must be named; empty where none is fixed.
	Naming string
}

// At is the place of a rank, step and tensor or operation.
func At(rank, step int, naming string) Place { return Place{rank, step, naming} }

// Blank reports whether the place fixes nothing.
func (p Place) Blank() bool { return p.Rank == Any && p.Step == Any && p.Naming == "" }

// Fits reports whether a finding names the place.
func (p Place) Fits(f *contract.Finding) bool {
	return (p.Rank == Any || p.Rank == f.Rank) && (p.Step == Any || p.Step == f.Step) &&
		(strings.Contains(f.Tensor, p.Naming) || strings.Contains(f.Message, p.Naming))
}

// String is the place in words.
func (p Place) String() string {
	var out []string
	if p.Rank != Any {
		out = append(out, fmt.Sprintf("rank %d", p.Rank))
	}
	switch {
	case p.Step == Any:
	case p.Step < 0:
		out = append(out, "before step 0")
	default:
		out = append(out, fmt.Sprintf("step %d", p.Step))
	}
	if p.Naming != "" {
		out = append(out, fmt.Sprintf("%q", p.Naming))
	}
	return strings.Join(out, ", ")
}
