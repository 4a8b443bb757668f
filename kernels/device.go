package kernels

import (
	"fmt"
	"strings"
)

// Device says which of the devices of a machine computes: enough for whoever has to find
// the card. Empty fields are unknown, or a device has none.
type Device struct {
	Index     int // as the driver counts
	Name      string
	UUID      string
	PCI       string // address: "0000:1b:00.0"
	Simulated bool
}

// String is "device 1 (NVIDIA H100 80GB HBM3, GPU-8c..., 0000:1b:00.0)".
func (d Device) String() string {
	var says []string
	for _, s := range []string{d.Name, d.UUID, d.PCI} {
		if s != "" {
			says = append(says, s)
		}
	}
	kind := "device"
	if d.Simulated {
		kind = SimulatedMark + " device"
	}
	return fmt.Sprintf("%s %d (%s)", kind, d.Index, strings.Join(says, ", "))
}

// Located is what a Backend offers that computes on one of several devices. Decorators hide
// it unless they unwrap, see TallierOf.
type Located interface {
	// On is the device.
	On() Device
	// Spare is how many bytes of the device's memory nobody uses.
	Spare() (uint64, error)
	// Parts is how many parts the device has that compute side by side: its
	// multiprocessors.
	Parts() int
	// EachPart has as many blocks as run side by side compute the sum of a seed that
	// ref.PartSum defines, and gives what came out of each.
	EachPart(seed uint32) ([]Part, error)
}

// Part is what a block computed, on a part of the device that has a number: none need have
// the first one, nor all numbers between.
type Part struct{ ID, Sum uint32 }

// LocatedOf finds the Located of a backend, as TallierOf does the Tallier.
func LocatedOf(b Backend) (l Located, ok bool) { return find[Located](b) }

// DeviceOf is where a backend computes, in words; empty where it says of no device.
func DeviceOf(b Backend) string {
	if l, ok := LocatedOf(b); ok {
		return l.On().String()
	}
	return ""
}

// Waiter is what a Backend offers whose kernels run beside the program: how often that has
// waited for them since the backend was opened. Decorators hide it unless they unwrap, see
// TallierOf.
type Waiter interface{ Waits() uint64 }

// WaiterOf finds the Waiter of a backend, as TallierOf does the Tallier.
func WaiterOf(b Backend) (w Waiter, ok bool) { return find[Waiter](b) }
