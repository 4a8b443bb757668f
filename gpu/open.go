//go:build cuda

package gpu

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gorgonia.org/cu"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// What the kernels need, which are PTX 8.0 for sm_80.
const (
	leastCUDA  = 12000 // as the driver counts: 12.0
	leastMajor = 8     // compute capability 8.0
)

// simulatorHint is of a simulator, or its devices, that nobody chose.
const simulatorHint = "--devices sim:N chooses it"

// Open opens the devices of a choice, in its order. A machine that cannot give them, and a
// library that is not of the chosen kind, is an UnavailableError; a variable of the
// environment that the simulator does not take a SettingError. A process has either real
// devices or simulated ones, of one number.
func Open(c Choice) ([]*Device, error) {
	if err := load(c); err != nil {
		return nil, err
	}
	version := cu.Version()
	if version < leastCUDA {
		return nil, &UnavailableError{What: "the driver supports CUDA " + cudaVersion(version) + ", the kernels need " + cudaVersion(leastCUDA),
			Hint: "a driver of version 525 or later has it"}
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, &UnavailableError{What: "cuDeviceGetCount: " + resultOf(err).Error(), Err: resultOf(err)}
	}
	if n == 0 {
		return nil, &UnavailableError{What: "the driver has no device", Hint: "CUDA_VISIBLE_DEVICES may hide it"}
	}
	indices := c.Indices
	if len(indices) == 0 || c.Simulated > 0 {
		indices = make([]int, n)
		for i := range indices {
			indices[i] = i
		}
	}
	var out []*Device
	for _, i := range indices {
		d, err := open(i, n, c.Simulated > 0, cudaVersion(version))
		if err != nil {
			return nil, Join(err, Close(out))
		}
		out = append(out, d)
	}
	return out, nil
}

// cudaVersion writes a version as people do: 12.4 for 12040.
func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// load opens the library of a choice.
func load(c Choice) error {
	path, hint := "libcuda.so.1", "it comes with NVIDIA's driver; --devices sim:N computes without a GPU"
	if c.Simulated > 0 {
		var err error
		if path, err = simulator(); err != nil {
			return err
		}
		hint = "make build-sim builds it"
	}
	err := drv.Open(path, c.Simulated)
	var failed *drv.OpenError
	if !errors.As(err, &failed) {
		return err
	}
	what := failed.Error()
	switch failed.State {
	case drv.NoLibrary:
		what = map[bool]string{false: "the driver ", true: "the simulator "}[c.Simulated > 0] + what
	case drv.IsSimulator:
		what, hint = what+", and it was not chosen by name", simulatorHint
	case drv.NoSimulator:
		what, hint = what+", and a simulator was chosen", SimulatorVariable+" names its file"
	case drv.InitFailed:
		if failed.Why != "" && failed.Init == InvalidValue {
			return &SettingError{failed.Why}
		}
		if hint = ""; c.Simulated == 0 {
			hint = "nvidia-smi may say more"
		}
	case drv.OtherIsOpened:
		hint = ""
	}
	return &UnavailableError{What: what, Hint: hint, Err: err}
}

// simulator is the file of the simulator: what the environment names, or beside the
// program.
func simulator() (string, error) {
	if path := os.Getenv(SimulatorVariable); path != "" {
		return filepath.Abs(path) // a name without a slash would be looked for elsewhere
	}
	program, err := os.Executable()
	if err != nil {
		return "", &UnavailableError{What: "where the simulator lies is unknown: " + err.Error(), Hint: SimulatorVariable + " names its file", Err: err}
	}
	return filepath.Join(filepath.Dir(program), "libcuda-sim.so"), nil
}

// open opens device i of n.
func open(i, n int, simulated bool, version string) (*Device, error) {
	if i >= n {
		return nil, &UnavailableError{What: fmt.Sprintf("device %d: this machine has %d, counted from 0", i, n)}
	}
	d := &Device{Info: Info{Index: i, Driver: version, Simulated: simulated}}
	if err := d.identify(); err != nil {
		return nil, err
	}
	if by := d.tellsSimulated(); by != "" && !simulated {
		return nil, &UnavailableError{What: fmt.Sprintf("%s says by %s that it is simulated, and real devices were asked for", d.Info, by), Hint: simulatorHint}
	}
	if d.Major < leastMajor {
		return nil, &UnavailableError{What: fmt.Sprintf("%s has compute capability %d.%d, the kernels need %d.0", d.Info, d.Major, d.Minor, leastMajor),
			Hint: "--devices chooses others"}
	}
	ctx, err := d.dev.RetainPrimaryCtx()
	if err != nil {
		return nil, d.fail(err, "cuDevicePrimaryCtxRetain")
	}
	d.ctx = drv.Context(handle(ctx))
	return d, nil
}

// tellsSimulated is by what a device shows that it is one of the simulator of this project,
// whatever the library is that has it and whether that says what it is; empty of any other.
func (i Info) tellsSimulated() string {
	_, id, _ := strings.Cut(i.UUID, "-")
	switch {
	case strings.HasPrefix(i.Name, "lockstep simulated"):
		return "its name"
	case strings.HasPrefix(strings.ReplaceAll(id, "-", ""), hex.EncodeToString([]byte("lockstep-sim"))):
		return "its UUID, " + i.UUID + ","
	}
	return ""
}

// identify asks the driver what the device is.
func (d *Device) identify() (err error) {
	if d.dev, err = cu.GetDevice(d.Index); err != nil {
		return d.fail(err, "cuDeviceGet")
	}
	if d.Name, err = d.dev.Name(); err != nil {
		return d.fail(err, "cuDeviceGetName")
	}
	u, err := drv.UUID(int(d.dev))
	if err != nil {
		return d.fail(err, "cuDeviceGetUuid")
	}
	prefix := "GPU-"
	if d.Simulated {
		prefix = "SIM-"
	} else if d.PCI, err = drv.PCI(int(d.dev)); err != nil {
		return d.fail(err, "cuDeviceGetPCIBusId")
	}
	d.UUID, d.PCI = prefix+fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), PCIAddress(d.PCI)
	total, err := d.dev.TotalMem()
	if err != nil {
		return d.fail(err, "cuDeviceTotalMem")
	}
	d.Memory = uint64(total)
	for _, a := range []struct {
		into *int
		attr cu.DeviceAttribute
	}{
		{&d.Major, cu.ComputeCapabilityMajor},
		{&d.Minor, cu.ComputeCapabilityMinor},
		{&d.Multiprocessors, cu.MultiprocessorCount},
		{&d.SharedMemory, 97}, // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, which cu has no name for
	} {
		if *a.into, err = d.dev.Attribute(a.attr); err != nil {
			return d.fail(err, "cuDeviceGetAttribute %d", int(a.attr))
		}
	}
	return nil
}
