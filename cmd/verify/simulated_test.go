//go:build cuda

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/data"
)

// These need the simulated driver: LOCKSTEP_CUDA_SIM names its file, as make test-cuda does.

// on is a verification on simulated devices.
func on(devices string, args ...string) []string {
	return append([]string{"--backend", "cuda", "--devices", devices, "--deadline", "60s"}, args...)
}

// alone is call in a process of its own: one has simulated devices of one number and size.
func alone(t *testing.T, memory string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "VERIFY_TEST_AS_COMMAND=1", "LOCKSTEP_SIM_MEMORY="+memory)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// TestSimulatedRefused: a variable that the simulator does not take is a usage error that
// names it, its value and the rule; memory that there is no address space for is a run that
// could not be.
func TestSimulatedRefused(t *testing.T) {
	args := on("sim:1", "--contract", "C-DDP-001.1", "--plan", "dp=2", "--config", "nano", "--steps", "1")
	code, stdout, stderr := alone(t, "-1", args...)
	if want := `verify: LOCKSTEP_SIM_MEMORY="-1": it must be bytes from 1M to 64G, `; code != cli.Usage || stdout != "" || !strings.HasPrefix(stderr, want) {
		t.Errorf("exit %d, want %d and %s\n%s%s", code, cli.Usage, want, stdout, stderr)
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `ulimit -v 64000000; exec "$0" "$@"`, os.Args[0]}, args...)...)
	cmd.Env = append(os.Environ(), "VERIFY_TEST_AS_COMMAND=1", "LOCKSTEP_SIM_MEMORY=64G")
	out, _ := cmd.CombinedOutput()
	if want := "could not be reserved: mmap of 137506062336 bytes: Cannot allocate memory"; cmd.ProcessState.ExitCode() != cli.CannotRun || !strings.Contains(string(out), want) {
		t.Errorf("exit %d, want %d and %s\n%s", cmd.ProcessState.ExitCode(), cli.CannotRun, want, out)
	}
}

// TestSimulatedDevices: whatever form a verification on simulated devices is written in, it
// says that they are, and that nobody looked at them; also where their histories are judged
// again by who has none.
func TestSimulatedDevices(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := call(t.Context(), on("sim:2", "--contract", "C-DDP-001.1,C-DDP-001.2", "--plan", "dp=2", "--config", "nano", "--steps", "1", "--format", "text,json,junit", "--out", dir)...)
	if code != cli.OK || !strings.HasPrefix(stdout, "held (simulated): reports in ") {
		t.Fatalf("%d: %s%s", code, stdout, stderr)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	text := read("report.txt")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "held") && !strings.Contains(line, "held (simulated)") {
			t.Errorf("%q", line)
		}
	}
	if strings.Count(text, "not monitored: a simulated device has no management library") != 2 || strings.Contains(text, "nothing found") {
		t.Errorf("%s", text)
	}
	var doc struct {
		Verdict   string
		Simulated bool
		Contracts []struct {
			Verdict string
			Clauses []struct{ Verdict string }
		}
		Devices []struct{ Monitored bool }
	}
	if err := json.Unmarshal([]byte(read("report.json")), &doc); err != nil {
		t.Fatal(err)
	}
	if !doc.Simulated || doc.Verdict != "held (simulated)" || len(doc.Contracts) != 1 || doc.Contracts[0].Verdict != "held (simulated)" || doc.Contracts[0].Clauses[0].Verdict != "held (simulated)" ||
		len(doc.Devices) != 2 || doc.Devices[0].Monitored {
		t.Errorf("%+v", doc)
	}
	if x := read("report.xml"); !strings.Contains(x, `<testsuite name="C-DDP-001 (simulated)"`) || strings.Count(x, "<skipped") != 2 || !strings.Contains(x, `name="C-DDP-001.1 (simulated) `) {
		t.Errorf("%s", x)
	}
	code, stdout, stderr = call(t.Context(), "--history", filepath.Join(dir, "histories"), "--contract", "C-DDP-001.1,C-DDP-001.2")
	if code != cli.OK || !strings.HasPrefix(stdout, "lockstep verification: held (simulated)") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	for file := range histories(t, dir) {
		if !strings.Contains(file, "-simulated") || !strings.Contains(file, `"device":"simulated device `) {
			t.Errorf("a header of a history: %.300s", file)
		}
	}
}

// histories are the first lines of all files of histories below a directory.
func histories(t *testing.T, dir string) map[string]bool {
	out := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".ndjson") {
			b, rerr := os.ReadFile(path)
			line, _, _ := strings.Cut(string(b), "\n")
			if err = rerr; !strings.Contains(path, "control") {
				out[line] = true
			}
		}
		return err
	})
	if err != nil || len(out) < 2 {
		t.Fatalf("%d files, %v", len(out), err)
	}
	return out
}

// TestSimulatedDevicesOfLines: whether a flag or the environment has chosen simulated
// devices, the line that shows a finding again chooses them too, in a shell that knows
// nothing of it. Of the run of a CPU only the control is on them, and that marks the report.
func TestSimulatedDevicesOfLines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	record(t, dir, "dp=2", data.Default())
	tamper(t, dir)
	bin := t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(bin, "verify")); err != nil {
		t.Fatal(err)
	}
	for variable, flags := range map[string][]string{"": {"--devices", "sim:1"}, "sim:1": nil} {
		t.Setenv("LOCKSTEP_CUDA", variable)
		code, stdout, stderr := alone(t, "64M", append(flags, "--backend", "cuda", "--history", dir, "--contract", "C-DDP-001")...)
		verdict, _, _ := strings.Cut(stdout, "\n")
		if code != cli.Violated || verdict != "lockstep verification: violated (simulated)" {
			t.Fatalf("LOCKSTEP_CUDA=%s: %d: %s%s", variable, code, stdout, stderr)
		}
		_, line, _ := strings.Cut(stdout, "  repeat   ")
		line, _, _ = strings.Cut(line, "\n")
		_, command, _ := strings.Cut(stdout, "  command    ")
		command, _, _ = strings.Cut(command, "\n")
		for _, line := range []string{line, command} {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
			cmd.Env = []string{"PATH=" + bin, "VERIFY_TEST_AS_COMMAND=1"}
			out, _ := cmd.CombinedOutput()
			again, _, _ := strings.Cut(string(out), "\n")
			if code := cmd.ProcessState.ExitCode(); code != cli.Violated || again != verdict {
				t.Errorf("%s: %d: %s", line, code, out)
			}
		}
	}
}

// TestSimulatedDevicesAreRequiredOff: who requires a device gets no simulated one, whoever
// chose it.
func TestSimulatedDevicesAreRequiredOff(t *testing.T) {
	t.Setenv("LOCKSTEP_CUDA", "")
	for _, variable := range []string{"", "sim"} {
		t.Setenv("LOCKSTEP_CUDA", variable)
		code, stdout, stderr := call(t.Context(), on("sim:2", "--require-device", "cuda", "--contract", "C-KERN-001.10")...)
		if code != cli.CannotRun || stdout != "" || !strings.Contains(stderr, "wants real devices, and simulated ones (sim:2) were chosen") {
			t.Errorf("%d: %s%s", code, stdout, stderr)
		}
	}
}

// TestDeviceLevels: each device, each pair and all together at each level, in one process
// and in agents of one device. Of the memory, 24 MB, level 3 writes nine tenths of what is free.
func TestDeviceLevels(t *testing.T) {
	for _, c := range []struct {
		args []string
		says []string
	}{
		{on("sim:2", "--level", "2"), []string{"C-KERN-001.9  saw 6/6", "C-KERN-001.10  saw 10/10"}},
		{on("sim:2", "--level", "3"), []string{"C-KERN-001.9  saw 6/6", "C-KERN-001.10  saw 10/10"}},
		{on("sim:3", "--level", "1"), []string{"C-KERN-001.9  saw 15/15", "C-KERN-001.10  saw 15/15"}},
		{on("sim:2", "--launch", "procs"), []string{"C-KERN-001.9  saw 6/6", "SIM-6c6f636b-7374-6570-2d73-696d00000000) of host", "in agent 0: not monitored", "SIM-6c6f636b-7374-6570-2d73-696d00000001)", "in agent 1: not monitored"}},
	} {
		code, stdout, stderr := alone(t, "24M", append(c.args, "--contract", "C-KERN-001.9,C-KERN-001.10")...)
		if code != cli.OK {
			t.Errorf("%v: %d: %s%s", c.args, code, stdout, stderr)
		}
		for _, s := range c.says {
			if !strings.Contains(stdout, s) {
				t.Errorf("%v: no %q in\n%s", c.args, s, stdout)
			}
		}
	}
}

// TestDeviceFaults: faults planted on one device are named with it, not with another one.
func TestDeviceFaults(t *testing.T) {
	for _, devices := range []string{"sim:2", "sim:3"} {
		code, stdout, stderr := alone(t, "24M", on(devices, "--self-test", "--contract", "C-KERN-001.9,C-KERN-001.10")...)
		if code != cli.OK || strings.Count(stdout, "caught  ") < 5 || strings.Count(stdout, "devices, rank 0, step 0") != 5 {
			t.Errorf("%s: %d: %s%s", devices, code, stdout, stderr)
		}
	}
}
