//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
)

// TestMain lets the test binary stand in for the command, as its own process.
func TestMain(m *testing.M) {
	if os.Getenv("VERIFY_TEST_AS_COMMAND") != "" {
		main()
	}
	os.Exit(m.Run())
}

// endless is a verification that does not end by itself within the test.
func endless(out string) []string {
	return []string{"--contract", "C-DDP-001", "--config", "nano", "--plan", "dp=4", "--steps", "100000", "--out", out, "--format", "text,json"}
}

func TestCancelEndsAllRanks(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	code, stdout, stderr := call(ctx, endless(dir)...)
	if code != cli.CannotRun || stdout != "" || !strings.Contains(stderr, "timed out") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if d := time.Since(begun); d > 20*time.Second {
		t.Errorf("ended after %s", d)
	}
	complete(t, dir)
}

// A history that does not come, as from a pipe, is not waited for.
func TestTimeoutEndsReading(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "0000.ndjson")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	code, stdout, stderr := call(t.Context(), "--history", dir, "--timeout", "50ms")
	if code != cli.CannotRun || stdout != "" || !strings.Contains(stderr, "--timeout 50ms has passed") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if f, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil { // lets the reader go
		_ = f.Close()
	}
}

func TestSignalEndsTheProcess(t *testing.T) {
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
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cli.CannotRun {
		t.Fatalf("%v, want exit code 4; stderr %q", err, stderr.String())
	}
	if !strings.Contains(stderr.String(), "interrupted") || stdout.Len() > 0 {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
	complete(t, dir)
	if found, _ := filepath.Glob(filepath.Join(dir, "report.*")); len(found) > 0 {
		t.Errorf("an interrupted verification left %v", found)
	}
}
