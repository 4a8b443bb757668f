package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
)

// TestADeadlineCannotRun: what was slow is neither wrong nor right.
func TestADeadlineCannotRun(t *testing.T) {
	for _, args := range [][]string{
		{"--contract", "C-COMM-001", "--case", "tree of 2 ranks", "--deadline", "1ns"},
		{"--contract", "C-DDP-001,C-PIPE-001", "--deadline", "20us"},
		{"--self-test", "--faults", "bit-flipped-once,plan-dependent", "--contract", "C-DET-001", "--deadline", "10us"},
	} {
		code, stdout, stderr := call(t.Context(), args...)
		if code != cli.CannotRun || !strings.Contains(stderr, "deadline expired") {
			t.Errorf("%q: exit %d, stderr %q\n%s", args, code, stderr, stdout)
		}
	}
}

// lost is a stdout that nothing can be written to.
type lost struct{}

func (lost) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestAViolationIsOneThoughItsReportIsLost: held is not.
func TestAViolationIsOneThoughItsReportIsLost(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--contract", "C-DDP-001", "--config", "nano", "--plan", "dp=2", "--steps", "1"}
	if code, _, stderr := call(t.Context(), append(args, "--out", dir)...); code != cli.OK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	tamper(t, filepath.Join(dir, "histories", "C-DDP-001_nano_dp=2", "test"))
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"--history", dir, "--contract", "C-DDP-001"}, lost{}, &stderr); code != cli.Violated || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("violated: exit %d, stderr %q", code, stderr.String())
	}
	if code := run(t.Context(), args, lost{}, &stderr); code != cli.CannotRun {
		t.Errorf("held: exit %d", code)
	}
}
