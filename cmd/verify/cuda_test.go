//go:build cuda

package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

var judged = flag.String("contracts", "C-DDP-001", "contracts that TestHeldOnDevices judges")

// TestHeldOnDevices: contracts hold on GPUs, and where those are simulated every verdict
// says so. LOCKSTEP_CUDA=sim takes simulated ones; without it they must be real.
func TestHeldOnDevices(t *testing.T) {
	choice, err := gpu.ParseChoice("", os.Getenv(gpu.Variable))
	if err != nil {
		t.Fatal(err)
	}
	held := "held"
	if choice.Simulated > 0 {
		held += " (" + kernels.SimulatedMark + ")"
	}
	code, stdout, stderr := asCommand(t, "--backend", "cuda", "--contract", *judged)
	t.Log(stdout)
	if code != cli.OK || stderr != "" {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	verdicts := regexp.MustCompile(`(?m)^(?:lockstep verification: | *)((?:held|violated|inconclusive)(?: \(simulated\))?)`).FindAllStringSubmatch(stdout, -1)
	if want := 3 + strings.Count(*judged, ","); len(verdicts) < want {
		t.Errorf("%d verdicts, want %d at least", len(verdicts), want)
	}
	for _, v := range verdicts {
		if v[1] != held {
			t.Errorf("%q, want %q", v[0], held)
		}
	}
}

// TestDevicesThatAreNotThere: no driver, no such device and simulated ones where real ones
// are required are runs that could not be, without a verdict.
func TestDevicesThatAreNotThere(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--devices 63", "no CUDA device can be used"},
		{"--devices 63 --require-device cuda", "no CUDA device can be used"},
		{"--devices sim:2 --require-device cuda", "wants real devices, and simulated ones (sim:2) were chosen"},
	} {
		t.Setenv(gpu.Variable, "")
		code, stdout, stderr := asCommand(t, strings.Fields("--backend cuda "+c.args)...)
		if code != cli.CannotRun || !strings.Contains(stderr, c.want) || strings.Contains(stdout, "held") {
			t.Errorf("%s: exit %d, want %d and %q\n%s%s", c.args, code, cli.CannotRun, c.want, stdout, stderr)
		}
	}
}

// asCommand runs this program as the command: what a run leaves on devices ends with it.
func asCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "VERIFY_TEST_AS_COMMAND=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
