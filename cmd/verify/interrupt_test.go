//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
)

// TestMain lets the test binary stand in for the command, as its own process, and
// for its agents.
func TestMain(m *testing.M) {
	if seat, err := procs.Taken(); seat != nil || err != nil || os.Getenv("VERIFY_TEST_AS_COMMAND") != "" {
		main()
	}
	os.Exit(m.Run())
}

// endless is a verification of which one case ends at once and one does not end by
// itself within the test.
func endless(out string) []string {
	args := []string{"--contract", "C-DDP-001", "--config", "nano", "--plan", "dp=4", "--steps", "100000", "--format", "text"}
	if out != "" {
		args = append(args, "--out", out, "--format", "json,junit")
	}
	return args
}

// partial checks the report of an interrupted verification in every form.
func partial(t *testing.T, dir, why string) {
	t.Helper()
	complete(t, dir)
	for name, says := range map[string][]string{
		"report.txt":  {"inconclusive", "the test run was interrupted", why + ": 0 of ", "cases were run and judged, the others are named as not run"},
		"report.json": {`"verdict": "inconclusive"`, "the test run was interrupted", why},
		"report.xml":  {`errors="`, "the test run was interrupted"},
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		for _, s := range says {
			if !strings.Contains(string(b), s) {
				t.Errorf("%s lacks %q:\n%s", name, s, b)
			}
		}
	}
}

func TestTimeoutLeavesAPartialReport(t *testing.T) {
	dir := t.TempDir()
	begun := time.Now()
	code, stdout, stderr := call(t.Context(), append(endless(dir), "--timeout", "3s")...)
	if code != cli.CannotRun || !strings.HasPrefix(stdout, "inconclusive: reports in ") || !strings.Contains(stderr, "timed out: --timeout 3s has passed") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if d := time.Since(begun); d > 20*time.Second {
		t.Errorf("ended after %s", d)
	}
	partial(t, dir, "--timeout 3s has passed")
}

func TestCancelEndsAllRanks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // its ranks have begun by then
	defer cancel()
	code, stdout, stderr := call(ctx, endless("")...)
	if code != cli.CannotRun || !strings.Contains(stdout, "the test run was interrupted") || !strings.Contains(stderr, "timed out") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestSignalsLeaveAPartialReport(t *testing.T) {
	sigs := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it, for the command too
		sigs = append(sigs, syscall.SIGHUP)
	}
	for _, sig := range sigs {
		dir := filepath.Join(t.TempDir(), "out")
		cmd := exec.Command(os.Args[0], endless(dir)...)
		cmd.Env = append(os.Environ(), "VERIFY_TEST_AS_COMMAND=1")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(dir); err == nil {
				break // the command makes it when it begins to run
			}
		}
		time.Sleep(200 * time.Millisecond) // into the first step
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != cli.CannotRun {
			t.Fatalf("%v: %v, want exit code 4; stderr %q", sig, err, stderr.String())
		}
		if !strings.Contains(stderr.String(), "interrupted") {
			t.Errorf("%v: stdout %q, stderr %q", sig, stdout.String(), stderr.String())
		}
		partial(t, dir, "")
	}
}
