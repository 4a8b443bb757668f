//go:build cuda

package gpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/internal/fakedriver"
)

// The tests run in a process whose driver is a fake of two devices. Others of other variants
// are started to open what they find, and say what that was.
const (
	childVariable = "GPU_TEST_CHILD"
	fakes         = "GPU_TEST_FAKES" // where the variants are
)

func TestMain(m *testing.M) {
	switch child := os.Getenv(childVariable); child {
	case "":
		os.Exit(parent())
	case "tests":
		os.Exit(m.Run())
	case "findings":
		fmt.Println(misused())
	default:
		fmt.Println(opened(child))
	}
}

// variants are fake drivers by directory; each is called libcuda.so.1, as the loader's path
// finds them, and simulators are named by their path too.
var variants = map[string][]string{
	"real":   {},
	"sim":    {"SIMULATOR=1", "DEVICES=8"},
	"newer":  {"SIMULATOR=2", "DEVICES=8"},
	"none":   {"DEVICES=0"},
	"failed": {"INIT=CUDA_ERROR_NO_DEVICE"},
	"old":    {"VERSION=11080"},
	"volta":  {"MAJOR=7"},

	"named":    {`NAME="lockstep simulated sm_80"`},
	"numbered": {`UUID="lockstep-sim"`},

	"setting": {"SIMULATOR=1", "INIT=CUDA_ERROR_INVALID_VALUE", `REFUSAL="X=7: it must be 8"`},
	"refused": {"SIMULATOR=1", "INIT=CUDA_ERROR_OUT_OF_MEMORY", `REFUSAL="no room for 9 bytes"`},
}

// parent makes the fakes and runs the tests with one of them.
func parent() int {
	dir, err := os.MkdirTemp("", "gpu")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	include, err := filepath.Abs("internal/drv/include")
	for name, macros := range variants {
		err = errors.Join(err, fakedriver.Build(filepath.Join(dir, name, "libcuda.so.1"), include, macros...))
	}
	broken := filepath.Join(dir, "broken", "libcuda.so.1")
	if err = errors.Join(err, os.MkdirAll(filepath.Dir(broken), 0o755), os.WriteFile(broken, []byte("not a library"), 0o644)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := process("tests", dir, "real", "")
	cmd.Args = append(cmd.Args, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if cmd.Run() != nil {
		return 1
	}
	return 0
}

// process is this program once more, where the loader finds one of the fakes. An empty
// simulator is none beside the program nor in the environment.
func process(child, dir, driver, simulator string) *exec.Cmd {
	return started(os.Args[0], child, dir, driver, simulator)
}

// started is the program in a file, where it finds the same.
func started(program, child, dir, driver, simulator string) *exec.Cmd {
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childVariable+"="+child, fakes+"="+dir, "LD_LIBRARY_PATH="+filepath.Join(dir, driver), SimulatorVariable+"=", Variable+"=")
	if simulator != "" {
		cmd.Env = append(cmd.Env, SimulatorVariable+"="+filepath.Join(dir, simulator, "libcuda.so.1"))
	}
	return cmd
}

// misused is what is said of launches that write where nothing is, on a simulated device.
func misused() error {
	d, err := Open(Choice{Simulated: 1})
	if err != nil {
		return err
	}
	b, err1 := d[0].Alloc(4)
	s, err2 := d[0].NewStream()
	m, err3 := d[0].Load(store)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	k, err := m.Kernel("store")
	if err != nil {
		return err
	}
	var p Params
	if f := Findings(); len(f) > 0 {
		return fmt.Errorf("findings before the launch: %q", f)
	}
	for n := 2; n < 7; n++ {
		err = k.Launch(s, Dim{X: n}, Dim{}, 0, p.Reset().Pointer(b, 0).U32(0))
	}
	return errors.Join(err, fmt.Errorf("%d findings", len(Findings())), s.Fill(b, 9, 0, 1))
}

// opened is what opening a choice gives, in words.
func opened(devices string) string {
	c, err := ParseChoice(devices, os.Getenv(Variable))
	if err != nil {
		return err.Error()
	}
	d, err := Open(c)
	var un *UnavailableError
	var set *SettingError
	switch {
	case errors.As(err, &set):
		return "setting: " + err.Error()
	case errors.As(err, &un):
		return "unavailable: " + un.What
	case err != nil:
		return err.Error()
	}
	var names []string
	for _, d := range d {
		names = append(names, fmt.Sprint(d, " ", d.UUID[:8]))
	}
	return strings.Join(append(names, fmt.Sprint(Close(d))), ", ")
}

// devices opens both devices of the fake, and holds at the end of the test that nothing was
// left on them.
func devices(t testing.TB) (a, b *Device) {
	t.Helper()
	d, err := Open(Choice{})
	if err != nil {
		t.Fatal(err)
	}
	if len(d) != 2 {
		t.Fatalf("%d devices", len(d))
	}
	t.Cleanup(func() {
		if err := Close(d); err != nil {
			t.Error(err)
		}
	})
	return d[0], d[1]
}

// must is for calls whose errors no test is about.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// ok fails a test that has an error.
func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
