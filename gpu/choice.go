package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The environment variables that choose devices.
const (
	Variable          = "LOCKSTEP_CUDA"     // sim or sim:N takes simulated devices
	SimulatorVariable = "LOCKSTEP_CUDA_SIM" // the file of the simulator, where it is not beside the program
)

// DefaultSimulated is how many simulated devices there are where no number is given.
const DefaultSimulated = 2

// maxDevices bounds the number and the indices of devices.
const maxDevices = 64

// maxSimulated is how many devices the simulator has.
const maxSimulated = 16

// Choice says which devices a program uses. The zero value is all real ones.
type Choice struct {
	// Indices are those of real devices, as the driver counts them, in the order in
	// which ranks take them. None is all there are.
	Indices []int
	// Simulated is the number of simulated devices. Where it is not 0, no real one is used.
	Simulated int
}

// String is what ParseChoice makes the choice of.
func (c Choice) String() string {
	if c.Simulated > 0 {
		return "sim:" + strconv.Itoa(c.Simulated)
	}
	if len(c.Indices) == 0 {
		return "all"
	}
	var s []string
	for _, i := range c.Indices {
		s = append(s, strconv.Itoa(i))
	}
	return strings.Join(s, ",")
}

// ParseChoice reads the value of --devices ("" or "all", "0-7", "0,2", "sim", "sim:4") and
// that of the environment variable LOCKSTEP_CUDA ("", "sim", "sim:4"). Together they must
// mean the same kind of device.
func ParseChoice(devices, variable string) (Choice, error) {
	c, err := parse(devices)
	if err != nil {
		return Choice{}, fmt.Errorf("--devices %q: %w", devices, err)
	}
	if variable == "" {
		return c, nil
	}
	v, ok, err := simulated(variable)
	switch {
	case err != nil:
		return Choice{}, fmt.Errorf("%s=%q: %w", Variable, variable, err)
	case !ok:
		return Choice{}, fmt.Errorf("%s=%q: it must be sim or sim:N, or not be set", Variable, variable)
	case devices == "":
		return v, nil
	case c.Simulated == 0:
		return Choice{}, fmt.Errorf("--devices %q means real devices and %s=%q simulated ones: give one of the two", devices, Variable, variable)
	}
	return c, nil
}

// parse reads a value of --devices.
func parse(s string) (Choice, error) {
	if s == "" || s == "all" {
		return Choice{}, nil
	}
	if c, ok, err := simulated(s); ok || err != nil {
		return c, err
	}
	var c Choice
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		first, err := number(lo, 0, maxDevices-1, "all, 0-7, 0,2 and sim:N")
		if err != nil {
			return c, err
		}
		last, err := number(hi, 0, maxDevices-1, "all, 0-7, 0,2 and sim:N")
		if err != nil {
			return c, err
		}
		if last < first {
			return c, fmt.Errorf("the range %s runs backwards", part)
		}
		for i := first; i <= last; i++ {
			if slices.Contains(c.Indices, i) {
				return c, fmt.Errorf("device %d is named twice", i)
			}
			c.Indices = append(c.Indices, i)
		}
	}
	return c, nil
}

// simulated reads sim and sim:N.
func simulated(s string) (c Choice, ok bool, err error) {
	if s == "sim" {
		return Choice{Simulated: DefaultSimulated}, true, nil
	}
	n, ok := strings.CutPrefix(s, "sim:")
	if !ok {
		return Choice{}, false, nil
	}
	c.Simulated, err = number(n, 1, maxSimulated, "sim and sim:N")
	return c, true, err
}

// number reads a decimal number without sign; known is what could stand where it does.
func number(s string, least, most int, known string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || int(n) < least || int(n) > most || s != strconv.Itoa(int(n)) {
		return 0, fmt.Errorf("%q is no number from %d to %d; known are %s", s, least, most, known)
	}
	return int(n), nil
}
