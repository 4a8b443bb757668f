package drill

import (
	"fmt"
	"math"
)

// Kind says what is wrong with a result.
type Kind uint8

// The kinds of differences.
const (
	// Failed: the call panicked, memory or the device gave an error, or a demand
	// that is not about elements was not met.
	Failed Kind = iota
	// Output: an element that the kernel sets has other bits than it must have.
	Output
	// ReadOnly: the kernel changed an operand that it must only read.
	ReadOnly
	// Guard: the kernel wrote to memory around its operands or between their rows.
	Guard
	// Returned: what the kernel gives beside tensors is wrong.
	Returned
)

// Difference is how a backend departs from what a case demands: the first
// element at which it does, where elements are compared.
type Difference struct {
	Kernel, Case string
	Kind         Kind
	// At names the element: operand, row and column, or what it lies beside.
	At string
	// Got and Want are the bits of that element.
	Got, Want uint32
	// Differ is how many of the Of output elements are wrong; 0 of 0 where they
	// were not counted.
	Differ, Of int
	// Text says what is wrong in the kinds that have no element.
	Text string
}

// failed is a difference without an element.
func failed(err error) *Difference { return &Difference{Kind: Failed, Text: err.Error()} }

// String says what is wrong, without kernel and case.
func (d *Difference) String() string {
	got, want := show(math.Float32frombits(d.Got)), show(math.Float32frombits(d.Want))
	switch d.Kind {
	case Output:
		if d.Of == 0 {
			return fmt.Sprintf("%s: got %s, want %s", d.At, got, want)
		}
		return fmt.Sprintf("%s: got %s, want %s; %d of %d output elements differ", d.At, got, want, d.Differ, d.Of)
	case ReadOnly:
		return fmt.Sprintf("read-only operand changed: %s: now %s, was %s", d.At, got, want)
	case Guard:
		return fmt.Sprintf("guard changed: %s: now %s, was %s", d.At, got, want)
	}
	return d.Text
}

// show gives a value as bits and as a decimal.
func show(x float32) string {
	return fmt.Sprintf("%#08x (%v)", math.Float32bits(x), x)
}
