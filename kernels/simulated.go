package kernels

import "strings"

// SimulatedMark is in the name of a backend whose device is simulated, and in whatever
// is made of that name: what such a device did proves nothing of a real one.
const SimulatedMark = "simulated"

// Simulated reports whether the name of a backend has the mark.
func Simulated(backend string) bool { return strings.Contains(backend, SimulatedMark) }

// EndMark ends what is said of a simulated device: of a real one it says nothing.
func EndMark(simulated bool) string {
	if !simulated {
		return ""
	}
	return " (" + SimulatedMark + ")"
}
