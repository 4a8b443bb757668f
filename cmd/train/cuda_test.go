//go:build cuda

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/spec"
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

// TestRequiredDevices: where real devices are required, simulated ones, whoever chose them,
// no driver or no such device end a run with 4 before it begins, in agents too; and what
// simulated ones have stored is not gone on with.
func TestRequiredDevices(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ck")
	for _, c := range []struct {
		variable, args, want string
		code                 int
	}{
		{"sim", "--save " + dir, "", cli.OK},
		{"sim", "--require-device cuda", "wants real devices, and simulated ones (sim:2) were chosen", cli.CannotRun},
		{"", "--require-device cuda --devices sim:1", "wants real devices, and simulated ones (sim:1) were chosen", cli.CannotRun},
		{"sim", "--require-device cuda --launch procs --agents 1", "wants real devices, and simulated ones (sim:2) were chosen", cli.CannotRun},
		{"", "--require-device cuda --devices 63", "no CUDA device can be used", cli.CannotRun},
	} {
		t.Setenv(gpu.Variable, c.variable)
		code, stdout, stderr := asCommand(t, append(strings.Fields(c.args), "--backend", "cuda", "--config", "tiny", "--steps", "1", "--fingerprint")...)
		if code != c.code || !strings.Contains(stderr, c.want) || code != cli.OK && stdout != "" {
			t.Errorf("LOCKSTEP_CUDA=%s %s: exit %d, want %d and %q\n%s%s", c.variable, c.args, code, c.code, c.want, stdout, stderr)
		}
	}
	o := options{resume: dir, devices: cli.Devices{Require: cli.CUDA}}
	if _, err := o.taken(t.Context(), spec.Config{}, io.Discard); err == nil || !strings.HasSuffix(err.Error(), "step-00000001: simulated devices have computed some of it, and --require-device cuda wants real ones") {
		t.Errorf("%v", err)
	}
}

// TestRequiredDevicesAreWhatTheySay: a simulator that lacks what marks it as one is found out
// by the devices that it has, also where nothing is required.
func TestRequiredDevicesAreWhatTheySay(t *testing.T) {
	lib, err := os.ReadFile(os.Getenv(gpu.SimulatorVariable))
	if err != nil {
		t.Fatalf("%s must name the simulator, which make build-sim builds: %v", gpu.SimulatorVariable, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), bytes.ReplaceAll(lib, []byte("lockstep_simulator"), []byte("lockstep_simulatoR")), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
	t.Setenv(gpu.Variable, "")
	for _, require := range []string{"", "--require-device cuda"} {
		code, stdout, stderr := asCommand(t, append(strings.Fields(require), "--backend", "cuda", "--config", "tiny", "--steps", "1", "--fingerprint")...)
		if code != cli.CannotRun || stdout != "" || !strings.Contains(stderr, "says by its name that it is simulated, and real devices were asked for") {
			t.Errorf("%s: exit %d, want %d\n%s%s", require, code, cli.CannotRun, stdout, stderr)
		}
	}
}

// TestSimulatedAgentWithoutMemory: an agent that cannot open its device says why on its
// stderr, and agent 0 says which agent on which host that is, and why.
func TestSimulatedAgentWithoutMemory(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	ln.Close()
	t.Setenv(gpu.Variable, "sim")
	args := strings.Fields("--backend cuda --config tiny --steps 1 --plan dp=2 --expect-agents 2 --rendezvous " + at + " --agent ")
	agent := exec.CommandContext(t.Context(), os.Args[0], append(args, "1")...)
	agent.Env = append(os.Environ(), "TRAIN_TEST_AS_COMMAND=1", "LOCKSTEP_SIM_MEMORY=1M")
	var said bytes.Buffer
	agent.Stderr = &said
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := asCommand(t, append(args, "0")...)
	_ = agent.Wait() // with the same code
	host, _ := os.Hostname()
	for who, c := range map[string]struct {
		code       int
		said, want string
	}{
		"agent 0": {code, stderr, `agent 1 \(process \d+ on ` + regexp.QuoteMeta(host) + `\): `},
		"agent 1": {agent.ProcessState.ExitCode(), said.String(), ""},
	} {
		want := regexp.MustCompile(`^train: ` + c.want + `backend of rank 1: cuMemAlloc of \d+ bytes on simulated device 1 .*: out of memory\n$`)
		if c.code != cli.CannotRun || !want.MatchString(c.said) {
			t.Errorf("%s: exit %d, want %d\n%swant %v", who, c.code, cli.CannotRun, c.said, want)
		}
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
