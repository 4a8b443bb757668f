package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/gpu"
)

// parseDevices reads flags as a command does, with LOCKSTEP_CUDA as it is given.
func parseDevices(t *testing.T, variable string, args ...string) (Devices, string, error) {
	t.Helper()
	t.Setenv(gpu.Variable, variable)
	var d Devices
	f := pflag.NewFlagSet("tool", pflag.ContinueOnError)
	backend := f.String("backend", DefaultBackend, "")
	d.Flags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return d, *backend, d.Check(f, *backend)
}

// TestDevices: which flags choose which devices, and what is wrong with others.
func TestDevices(t *testing.T) {
	for _, c := range []struct{ variable, args, want string }{
		{"", "", "all"},
		{"", "--backend=cuda", "all"},
		{"", "--backend=cuda --devices=0-1", "0,1"},
		{"", "--backend=cuda --devices=0-1 --require-device=cuda", "0,1"},
		{"", "--backend=cuda --devices=sim:3", "sim:3"},
		{"sim", "--backend=cuda", "sim:2"},
		{"", "--backend=cuda --devices=sim:3 --require-device=cuda", "unavailable: --require-device cuda wants real devices, and simulated ones (sim:3) were chosen"},
		{"", "--backend=cuda --devices=sim:1 --require-device=cuda", "unavailable: --require-device cuda wants real devices, and simulated ones (sim:1) were chosen"},
		{"sim", "--backend=cuda --require-device=cuda", "unavailable: --require-device cuda wants real devices, and simulated ones (sim:2) were chosen"},
	} {
		d, _, err := parseDevices(t, c.variable, strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		}
		choice, err := d.chosen()
		got := choice.String()
		var un *gpu.UnavailableError
		if errors.As(err, &un) {
			got = "unavailable: " + un.What
		}
		if got != c.want {
			t.Errorf("LOCKSTEP_CUDA=%s %s chooses %s, want %s", c.variable, c.args, got, c.want)
		}
	}
	var usage *UsageError
	for _, c := range []struct{ variable, args, want string }{
		{"", "--devices=0", `devices "0": belongs to --backend cuda; the backend is cpu`},
		{"", "--backend=ref --devices=sim:2", `devices "sim:2": belongs to --backend cuda; the backend is ref`},
		{"", "--require-device=cuda", `require-device "cuda": belongs to --backend cuda; the backend is cpu`},
		{"", "--backend=cuda --require-device=rocm", `require-device "rocm": known is cuda`},
		{"", "--backend=cuda --require-device=", `require-device "": known is cuda`},
		{"", "--backend=cuda --devices=", "devices: names none"},
		{"", "--backend=cuda --devices=3-1", `--devices "3-1": the range 3-1 runs backwards`},
		{"yes", "--backend=cuda", `LOCKSTEP_CUDA="yes": it must be sim or sim:N, or not be set`},
		{"sim", "--backend=cuda --devices=0", `--devices "0" means real devices`},
	} {
		if _, _, err := parseDevices(t, c.variable, strings.Fields(c.args)...); !errors.As(err, &usage) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("LOCKSTEP_CUDA=%s %s: %v, want %s", c.variable, c.args, err, c.want)
		}
	}
	if _, _, err := parseDevices(t, "yes"); err != nil {
		t.Errorf("the variable matters to another backend: %v", err)
	}
}

// TestChosen: lines that run something again have what chose its devices, and no more.
func TestChosen(t *testing.T) {
	for _, name := range []string{"LOCKSTEP_SIM_MEMORY", gpu.SimulatorVariable, "CUDA_VISIBLE_DEVICES", "LOCKSTEP_ISA"} {
		t.Setenv(name, "1")
	}
	for _, c := range []struct{ variable, args, env, flags string }{
		{"", "", "", ""},
		{"sim", "", "", ""},
		{"", "--backend=cuda", "CUDA_VISIBLE_DEVICES=1", ""},
		{"", "--backend=cuda --devices=0-1 --require-device=cuda", "CUDA_VISIBLE_DEVICES=1", "--devices 0-1 --require-device cuda"},
		{"", "--backend=cuda --devices=sim:3", "LOCKSTEP_CUDA_SIM=1 LOCKSTEP_SIM_MEMORY=1", "--devices sim:3"},
		{"sim:4", "--backend=cuda", "LOCKSTEP_CUDA=sim:4 LOCKSTEP_CUDA_SIM=1 LOCKSTEP_SIM_MEMORY=1", ""},
	} {
		d, backend, err := parseDevices(t, c.variable, strings.Fields(c.args)...)
		if err != nil {
			t.Fatal(err)
		}
		var of []string
		env, flags := d.Chosen(backend)
		for _, e := range env { // the machine's own settings of the simulator are none of the test's
			if !strings.HasPrefix(e, "LOCKSTEP_SIM_") || strings.HasPrefix(e, "LOCKSTEP_SIM_MEMORY=") {
				of = append(of, e)
			}
		}
		if got := strings.Join(of, " "); got != c.env || strings.Join(flags, " ") != c.flags {
			t.Errorf("LOCKSTEP_CUDA=%s %s: %q, %q; want %q, %q", c.variable, c.args, got, flags, c.env, c.flags)
		}
	}
}

// TestNoDevices: GPUs that cannot be had are no usage error, so that a command that was to
// use them could not run. LD_LIBRARY_PATH is read when a process starts, so this one cannot
// hide a driver; the simulator's absence it can arrange.
func TestNoDevices(t *testing.T) {
	t.Setenv(gpu.SimulatorVariable, t.TempDir()+"/libcuda-sim.so")
	var un *gpu.UnavailableError
	var usage *UsageError
	_, err := OpenBackend(CUDA, Devices{List: "sim:1"})
	if !errors.As(err, &un) || errors.As(err, &usage) {
		t.Errorf("%v", err)
	}
	if _, err := OpenBackend(CUDA, Devices{List: "x"}); !errors.As(err, &usage) {
		t.Errorf("a list that is none: %v", err)
	}
}
