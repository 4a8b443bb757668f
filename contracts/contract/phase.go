package contract

import (
	"cmp"
	"fmt"
	"slices"
)

// Phase is when in a step something happens. What comes first is the cause of what
// follows it.
type Phase uint8

// The phases, in the order of a step. The zero value says nothing: it comes after
// all others of its step.
const (
	Unphased    Phase = iota
	Drilled           // a kernel or a communicator by itself: before every step
	Memory            // what memory is used by whom
	Data              // the batch, and who takes what of it
	Initial           // the state that the run begins with
	Forward           // activations and the loss
	Backward          // gradients of activations, and each logical worker's of parameters
	Reduction         // sums over workers and ranks
	Norm              // the norm and the coefficient of clipping
	Update            // the optimizer's step
	Publication       // what owners give to the other ranks, or store
)

// phases are the words for them in reports.
var phases = [...]string{"", "drill", "memory", "data", "initial state", "forward pass", "worker's gradient", "reduction", "norm", "update", "publication"}

// Phases lists the words for the phases, in their order.
func Phases() []string { return slices.Clone(phases[1:]) }

// String is the phase's word in reports.
func (p Phase) String() string {
	if int(p) < len(phases) {
		return phases[p]
	}
	return fmt.Sprintf("phase %d", uint8(p))
}

// MarshalText is String.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (p *Phase) UnmarshalText(b []byte) error {
	i := slices.Index(phases[:], string(b))
	if i < 0 {
		return fmt.Errorf("phase %q: known are %q", b, Phases())
	}
	*p = Phase(i)
	return nil
}

// In is the clause, of whose findings those that name no phase are of p.
func (c *Clause) In(p Phase) *Clause {
	c.Phase = p
	return c
}

// Compare orders findings by what may be the cause of what: by step, by phase, what
// breaks a rule before what merely differs from another run, and then in the order
// of the computation. Findings that are equal so far are as likely. A golden hash
// names nothing, so what differs from one comes last.
func (f *Finding) Compare(g *Finding) int {
	return cmp.Or(cmp.Compare(f.general()/2, g.general()/2), cmp.Compare(f.step(), g.step()), cmp.Compare(f.Phase-1, g.Phase-1), // Unphased is the last
		cmp.Compare(f.general(), g.general()), cmp.Compare(f.Order, g.Order))
}

// step is the finding's, but that what is tried by itself comes before all steps.
func (f *Finding) step() int {
	if f.Phase == Drilled {
		return -2
	}
	return f.Step
}

// general is 1 of a finding that merely differs from another run, 2 of one that
// differs from a hash.
func (f *Finding) general() int {
	switch f.Against {
	case "":
		return 0
	case Golden:
		return 2
	}
	return 1
}
