package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// CUDA is the backend of GPUs.
const CUDA = "cuda"

// Devices says which GPUs compute, as flags do.
type Devices struct {
	List    string // of --devices
	Require string // of --require-device; empty requires none
}

// Flags adds the flag that chooses devices, and the one that refuses simulated ones.
func (d *Devices) Flags(f *pflag.FlagSet) {
	f.StringVar(&d.List, "devices", "", "with --backend cuda: which `DEVICES`: all, 0-7, 0,2, or sim:N for N simulated ones (default: all)")
	f.StringVar(&d.Require, "require-device", "", "`cuda`: fail unless real GPUs compute; simulated ones are none")
}

// Check refuses flags that have no meaning for a backend.
func (d *Devices) Check(flags *pflag.FlagSet, backend string) error {
	switch given := flags.Changed; {
	case given("require-device") && d.Require != CUDA:
		return Usagef("require-device %q: known is cuda", d.Require)
	case given("devices") && backend != CUDA:
		return Usagef("devices %q: belongs to --backend cuda; the backend is %s", d.List, backend)
	case given("devices") && d.List == "":
		return Usagef("devices: names none")
	case given("require-device") && backend != CUDA:
		return Usagef("require-device %q: belongs to --backend cuda; the backend is %s", d.Require, backend)
	}
	if backend != CUDA {
		return nil
	}
	_, err := d.choice()
	return err
}

// choice is what the flags and the environment choose together.
func (d *Devices) choice() (gpu.Choice, error) {
	c, err := gpu.ParseChoice(d.List, os.Getenv(gpu.Variable))
	return c, AsUsage(err)
}

// Mark is the name of a backend for reports, which say where its devices are simulated.
func (d *Devices) Mark(backend string) string {
	if c, err := d.choice(); backend == CUDA && err == nil && c.Simulated > 0 {
		return fmt.Sprintf("%s (%s: %s)", backend, kernels.SimulatedMark, c)
	}
	return backend
}

// Chosen is what chose the devices of a backend: of the environment, with what shapes them
// there, as NAME=value, and of the flags.
func (d *Devices) Chosen(backend string) (env, flags []string) {
	c, err := d.choice()
	if backend != CUDA || err != nil {
		return nil, nil
	}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		shapes := name == gpu.SimulatorVariable || strings.HasPrefix(name, "LOCKSTEP_SIM_")
		if c.Simulated == 0 {
			shapes = name == "CUDA_VISIBLE_DEVICES" || name == "CUDA_DEVICE_ORDER"
		}
		if shapes || name == gpu.Variable && value != "" {
			env = append(env, e)
		}
	}
	slices.Sort(env)
	for _, f := range []struct{ name, value string }{{"--devices", d.List}, {"--require-device", d.Require}} {
		if f.value != "" {
			flags = append(flags, f.name, f.value)
		}
	}
	return env, flags
}

// Kind is what all agents of a run must have in common: whether its devices are simulated,
// and whether they may be.
func (d *Devices) Kind(backend string) string {
	c, err := d.choice()
	return fmt.Sprintf("simulated %t, required %q", backend == CUDA && err == nil && c.Simulated > 0, d.Require)
}

// Simulated reports whether the name of a backend, as a run has it, is of a simulated device.
func Simulated(backend string) bool { return kernels.Simulated(backend) }

// EndMark ends what is printed of simulated devices.
func EndMark(simulated bool) string { return kernels.EndMark(simulated) }

// chosen is the choice, where it is of devices as they are required.
func (d *Devices) chosen() (gpu.Choice, error) {
	c, err := d.choice()
	if err == nil && d.Require != "" && c.Simulated > 0 {
		err = &gpu.UnavailableError{What: "--require-device cuda wants real devices, and simulated ones (" + c.String() + ") were chosen"}
	}
	return c, err
}

// Real refuses, where devices are required to be real, what was computed earlier if it was
// on simulated ones.
func (d *Devices) Real(simulated bool, what string) error {
	if d.Require == "" || !simulated {
		return nil
	}
	return fmt.Errorf("%s: simulated devices have computed some of it, and --require-device %s wants real ones", what, d.Require)
}
