//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
)

func TestLostOutputCannotRun(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"--fingerprint", "--steps", "1"}, full, &stderr); code != cli.CannotRun || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

// TestLackOfMemoryIsNoUsageError, whoever notices it.
func TestLackOfMemoryIsNoUsageError(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "train")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	limited := func(args string) (int, string) {
		cmd := exec.Command("sh", "-c", "ulimit -v 1000000 && exec "+bin+" "+args)
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if code, out := limited("--help"); code != cli.OK {
		t.Skipf("so little memory does not start a program of this Go: exit code %d, %s", code, out)
	}
	for _, args := range []string{"--config 5M --plan dp=8 --steps 1", "--config 50M --steps 1"} {
		if code, out := limited(args); code != cli.CannotRun || !strings.Contains(out, "GiB of memory") {
			t.Errorf("%s: exit code %d, %s", args, code, out)
		}
	}
	if code, out := limited("--steps 1 --plan dp=2"); code != cli.OK {
		t.Errorf("what fits: exit code %d, %s", code, out)
	}
}
