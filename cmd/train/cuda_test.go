//go:build cuda

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/gpu"
)

// TestGolden: every run of testdata/devices.txt ends on GPUs with the line of its golden
// run. LOCKSTEP_CUDA=sim computes on simulated ones, and then the line says so; without it
// they must be real.
func TestGolden(t *testing.T) {
	choice, err := gpu.ParseChoice("", os.Getenv(gpu.Variable))
	if err != nil {
		t.Fatal(err)
	}
	mark := ""
	if choice.Simulated > 0 {
		mark = " (simulated)"
	}
	runs := heldRuns(t)
	if testing.Short() {
		runs = runs[2:3]
	}
	for _, h := range runs {
		t.Run(h.name(), func(t *testing.T) {
			want, err := h.line()
			if err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := asCommand(t, append(h.args(), "--backend", "cuda")...)
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			if got := lines[len(lines)-1]; code != cli.OK || got != want+mark || stderr != "" {
				t.Errorf("exit %d\n%s\nwant\n%s\n%s", code, stdout, want+mark, stderr)
			}
		})
	}
}

// TestSimulatedRunsAreMarked: whatever training on simulated devices prints and writes says
// that they are, in agents too.
func TestSimulatedRunsAreMarked(t *testing.T) {
	t.Setenv(gpu.Variable, "sim:1")
	for _, launch := range []string{"--launch goroutines", "--launch procs --agents 1"} {
		markedRun(t, append(strings.Fields(launch), "--backend", "cuda", "--steps", "2", "--config", "tiny")...)
	}
}

// args are the command's.
func (h held) args() []string {
	c := h.golden.Config
	return slices.Concat([]string{
		"--config", c.Model.Name, fmt.Sprintf("--tied=%v", c.Model.Tied), fmt.Sprintf("--clip=%v", c.Optimizer.Clip),
		"--plan", h.plan, "--steps", strconv.Itoa(h.steps), "--fingerprint", "--quiet",
	}, h.flags)
}

// asCommand runs this program as the command: what a run leaves on devices ends with it.
func asCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "TRAIN_TEST_AS_COMMAND=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
