//go:build cuda

package drv

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "github.com/NVIDIA/go-nvml/pkg/nvml" // which exports every symbol of a program that is not hidden
	"gorgonia.org/cu"                      // whose calls must all have a trampoline

	"github.com/lockstep-ml/lockstep/gpu/internal/fakedriver"
)

// TestLinked: no symbol of the driver is left for the loader to find, which would end a
// program where there is no driver, and none is exported, which would take the driver's
// own calls to itself.
func TestLinked(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libs {
		if strings.Contains(l, "cuda") {
			t.Errorf("the program needs %s to start", l)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	driver := regexp.MustCompile(`^(cu[A-Z]|drv_)`)
	batch := map[string]bool{"cuDeviceGetAttributes": true, "cuLaunchAndSync": true, "cuAllocAndCopy": true} // of gorgonia.org/cu itself
	for _, s := range symbols {
		if driver.MatchString(s.Name) && !batch[s.Name] {
			t.Errorf("%s is a dynamic symbol of the program", s.Name)
		}
	}
	if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "dlsym" }) {
		t.Error("the program has no dlsym: this is not the one that was meant")
	}
}

// TestNotOpen: without a library every call answers that there is no device.
func TestNotOpen(t *testing.T) {
	if os.Getenv("DRV_TEST") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNotOpen$", "-test.v")
		cmd.Env = append(os.Environ(), "DRV_TEST=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestNotOpen") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for what, err := range map[string]error{"Sync": Sync(nil), "StreamSync": StreamSync(nil, nil), "Use": Use(Context(new(byte)))} {
		if err != NoDevice {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOpen: a library that is not what was asked for leaves no trace, the first one that is
// stays, and functions that it lacks are not supported.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	build := func(name string, macros ...string) string {
		file := filepath.Join(dir, name)
		if err := fakedriver.Build(file, "include", macros...); err != nil {
			t.Fatal(err)
		}
		return file
	}
	real, sim, bad := build("real.so"), build("sim.so", "SIMULATOR=1"), build("bad.so", "INIT=CUDA_ERROR_SYSTEM_NOT_READY")
	for _, c := range []struct {
		path    string
		devices int
		want    State
		words   string
	}{
		{filepath.Join(dir, "no.so"), 0, NoLibrary, "no.so: cannot open shared object file"},
		{sim, 0, IsSimulator, "sim.so is a simulator"},
		{real, 1, NoSimulator, "real.so is no simulator of this version"},
		{bad, 0, InitFailed, "bad.so: cuInit: system not ready"},
		{sim, 3, InitFailed, "sim.so: cuInit: invalid value"},
	} {
		var e *OpenError
		if err := Open(c.path, c.devices); !errors.As(err, &e) || e.State != c.want || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s, %d devices: %v, want %s", c.path, c.devices, err, c.words)
		}
		if err := Sync(nil); err != NoDevice {
			t.Errorf("after %s was refused: %v", c.path, err)
		}
	}
	for range 2 {
		if err := Open(sim, 2); err != nil {
			t.Fatal(err)
		}
	}
	var e *OpenError
	for _, err := range []error{Open(real, 0), Open(sim, 1), Open(sim, 0)} {
		if !errors.As(err, &e) || e.State != OtherIsOpened {
			t.Errorf("another library: %v", err)
		}
	}
	if err := Sync(nil); err != InvalidContext {
		t.Errorf("a call that reached the library: %v", err)
	}
	if _, err := Occupancy(nil, nil, 1, 0); err != InvalidContext {
		t.Errorf("a call that reached the library: %v", err)
	}
	if _, _, err := cu.StreamPriorityRange(); err != cu.NotSupported {
		t.Errorf("a function that the library lacks: %v", err)
	}
	// The fake lacks the first version, which is called where there is no second.
	if u, err := UUID(1); err != nil || u[0] != 0x11 {
		t.Errorf("%x, %v", u, err)
	}
}
