//go:build cuda

package gpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"github.com/lockstep-ml/lockstep/gpu/internal/fakedriver"
)

// TestOpen: which library is taken, and what is said where none can be. A simulator is
// taken where it was chosen by name and nowhere else, and nothing else is taken for one.
func TestOpen(t *testing.T) {
	const (
		both   = "device 0 (Fake 0, 0000:1a:00.0) GPU-1010, device 1 (Fake 1, 0000:1b:00.0) GPU-1111, <nil>"
		simTwo = "simulated device 0 (Fake 0, sm_90) SIM-1010, simulated device 1 (Fake 1, sm_90) SIM-1111, <nil>"
	)
	dir := os.Getenv(fakes)
	for _, c := range []struct{ driver, simulator, devices, variable, want string }{
		{"real", "", "all", "", both},
		{"real", "sim", "all", "", both},
		{"real", "", "1", "", "device 1 (Fake 1, 0000:1b:00.0) GPU-1111, <nil>"},
		{"real", "", "1,0", "", "device 1 (Fake 1, 0000:1b:00.0) GPU-1111, device 0 (Fake 0, 0000:1a:00.0) GPU-1010, <nil>"},
		{"real", "", "0-2", "", "unavailable: device 2: this machine has 2, counted from 0"},
		{"real", "sim", "sim:2", "", simTwo},
		{"broken", "sim", "sim:2", "", simTwo},
		{"real", "sim", "sim:2", "sim", simTwo},
		{"real", "sim", "0", "sim", `--devices "0" means real devices and LOCKSTEP_CUDA="sim" simulated ones: give one of the two`},
		{"real", "sim", "sim:1", "", "simulated device 0 (Fake 0, sm_90) SIM-1010, <nil>"},
		{"real", "sim", "sim:9", "", "unavailable: SIM: cuInit: invalid value"},

		{"real", "setting", "sim:1", "", "setting: X=7: it must be 8"},
		{"real", "refused", "sim:1", "", "unavailable: SIM: no room for 9 bytes"},

		{"broken", "sim", "all", "", "unavailable: the driver cannot be loaded: "},
		{"none", "sim", "all", "", "unavailable: the driver has no device"},
		{"failed", "sim", "all", "", "unavailable: libcuda.so.1: cuInit: no device"},
		{"old", "sim", "all", "", "unavailable: the driver supports CUDA 11.8, the kernels need 12.0"},
		{"volta", "sim", "all", "", "unavailable: device 0 (Fake 0, 0000:1a:00.0) has compute capability 7.0, the kernels need 8.0"},
		{"sim", "sim", "all", "", "unavailable: libcuda.so.1 is a simulator, and it was not chosen by name"},
		{"named", "", "all", "", "unavailable: device 0 (lockstep simulated sm_80 0, 0000:1a:00.0) says by its name that it is simulated, and real devices were asked for"},
		{"numbered", "", "1", "", "unavailable: device 1 (Fake 1, 0000:1b:00.0) says by its UUID, GPU-6c6f636b-7374-6570-2d73-696d11111111, that it is simulated, and real devices were asked for"},
		{"sim", "", "0-1", "", "unavailable: libcuda.so.1 is a simulator, and it was not chosen by name"},

		{"real", "real", "sim", "", "unavailable: SIM is no simulator of this version, and a simulator was chosen"},
		{"sim", "newer", "sim", "", "unavailable: SIM is no simulator of this version, and a simulator was chosen"},
		{"sim", "", "sim", "", "unavailable: the simulator cannot be loaded: "},
		{"real", "missing", "sim", "", "unavailable: the simulator cannot be loaded: "},
	} {
		cmd := process(c.devices, dir, c.driver, c.simulator)
		cmd.Env = append(cmd.Env, Variable+"="+c.variable)
		out, err := cmd.CombinedOutput()
		got := strings.TrimSuffix(string(out), "\n")
		if c.simulator != "" {
			got = strings.ReplaceAll(got, dir+"/"+c.simulator+"/libcuda.so.1", "SIM")
		}
		if err != nil || got != c.want && !(strings.HasSuffix(c.want, ": ") && strings.HasPrefix(got, c.want)) {
			t.Errorf("driver %q, simulator %q, --devices %s, variable %q: %v\n got %s\nwant %s", c.driver, c.simulator, c.devices, c.variable, err, got, c.want)
		}
	}
}

// TestBeside: the simulator is looked for beside the program.
func TestBeside(t *testing.T) {
	dir, bin := os.Getenv(fakes), t.TempDir()
	for from, to := range map[string]string{os.Args[0]: "program", filepath.Join(dir, "sim", "libcuda.so.1"): "libcuda-sim.so"} {
		b, err := os.ReadFile(from)
		ok(t, err, os.WriteFile(filepath.Join(bin, to), b, 0o755))
	}
	for devices, want := range map[string]string{"sim:1": "simulated device 0 (Fake 0, sm_90) SIM-1010, <nil>\n", "all": "unavailable: the driver cannot be loaded: "} {
		out, err := started(filepath.Join(bin, "program"), devices, dir, "broken", "").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("--devices %s: %s, %v; want %s", devices, out, err, want)
		}
	}
}

// TestFindings: what the simulator found is in the error of what failed by it, the first of
// it, and in no other error.
func TestFindings(t *testing.T) {
	want := `launch of store, 6x1x1 blocks of 1x1x1 threads, 0 bytes of shared memory on simulated device 0 (Fake 0, sm_90): illegal address:
store writes 2 words
store writes 3 words
store writes 4 words
store writes 5 words
5 findings
cuMemsetD8Async of 1 bytes on simulated device 0 (Fake 0, sm_90): bytes 9 to 10 of a buffer of 4
`
	if out, err := process("findings", os.Getenv(fakes), "broken", "sim").CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v\n got %s\nwant %s", err, out, want)
	}
	if f := Findings(); len(f) > 0 {
		t.Errorf("of a driver: %q", f)
	}
}

// TestOpenGivesBack: where one device cannot be opened, none stays open.
func TestOpenGivesBack(t *testing.T) {
	a, _ := devices(t)
	for range 2 {
		if _, err := Open(Choice{Indices: []int{0, 1, 2}}); err == nil {
			t.Fatal("device 2 of two is open")
		}
	}
	if n := must(a.dev.Attribute(cu.DeviceAttribute(fakedriver.Refs)))(t); n != 1 {
		t.Errorf("%v is open %d times, want once", a, n)
	}
}

// TestOtherKind: a process that has real devices gets no simulated ones.
func TestOtherKind(t *testing.T) {
	devices(t)
	t.Setenv(SimulatorVariable, os.Getenv(fakes)+"/sim/libcuda.so.1")
	_, err := Open(Choice{Simulated: 1})
	if want := "no CUDA device can be used: this process runs with libcuda.so.1"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestIdentity: all that is known of a device.
func TestIdentity(t *testing.T) {
	_, d := devices(t)
	want := Info{Index: 1, Name: "Fake 1", UUID: "GPU-11111111-1111-1111-1111-111111111111", PCI: "0000:1b:00.0", Major: 9,
		Memory: 1 << 20, Driver: "12.4", Multiprocessors: 132, SharedMemory: 227 << 10}
	if d.Info != want {
		t.Errorf("%+v\nwant %+v", d.Info, want)
	}
}
