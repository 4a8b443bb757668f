//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/files"
)

// refused runs the command, which must end at once, before a step, with a code and
// a message that names both.
func refused(t *testing.T, code int, says []string, args ...string) {
	t.Helper()
	type result struct {
		code           int
		stdout, stderr string
	}
	done := make(chan result, 1)
	go func() {
		code, stdout, stderr := call(t.Context(), args...)
		done <- result{code, stdout, stderr}
	}()
	select {
	case r := <-done:
		if r.code != code || r.stdout != "" {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q: want %d", args, r.code, r.stdout, r.stderr, code)
		}
		for _, s := range says {
			if !strings.Contains(r.stderr, s) {
				t.Errorf("%q: stderr %q: want %q", args, r.stderr, s)
			}
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%q does not end", args)
	}
}

func fifo(t *testing.T, path string) string {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// store trains nano with a seed for some steps and stores each in dir.
func store(t *testing.T, dir, seed, steps string, more ...string) {
	t.Helper()
	args := append([]string{"--seed", seed, "--steps", steps, "--save", dir, "--save-every", "1"}, more...)
	if code, _, stderr := call(t.Context(), args...); code != cli.OK {
		t.Fatalf("%q: exit code %d: %s", args, code, stderr)
	}
}

func TestWhatIsNoRegularFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	const regular = "must be a regular file"
	p := fifo(t, filepath.Join(dir, "p.json"))
	refused(t, cli.Usage, []string{p, "named pipe", regular}, "--config", p)
	refused(t, cli.Usage, []string{p, "named pipe", regular}, "--data", p)
	if _, err := os.Stat("/proc/cpuinfo"); err == nil {
		refused(t, cli.Usage, []string{"/proc/cpuinfo", regular + " with content"}, "--data", "/proc/cpuinfo")
	}
	ck := filepath.Join(dir, "ck")
	store(t, ck, "1", "1")
	step := filepath.Join(ck, checkpoint.DirName(1))
	for _, name := range []string{checkpoint.FileName(0), checkpoint.ManifestName} {
		path := filepath.Join(step, name)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		fifo(t, path)
		refused(t, cli.Usage, []string{path, regular}, "--resume", ck)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/zero", path); err != nil {
			t.Fatal(err)
		}
		refused(t, cli.Usage, []string{path, regular}, "--resume", ck)
	}
}

// TestOutputsAreProbedFirst: before a step, not after the last one.
func TestOutputsAreProbedFirst(t *testing.T) {
	plain := file(t, "plain", "x")
	for _, flag := range []string{"--save", "--history"} {
		refused(t, cli.CannotRun, []string{plain}, flag, plain)
		refused(t, cli.CannotRun, []string{plain}, flag, filepath.Join(plain, "below"))
		dir := t.TempDir()
		held, err := files.Hold(dir)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, cli.CannotRun, []string{dir, "another run writes to it"}, flag, dir)
		held.Release()
	}
}

// TestDirectoriesAreOfOneUse: also where a link hides that two are one.
func TestDirectoriesAreOfOneUse(t *testing.T) {
	dir := t.TempDir()
	link, ck := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "ck")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{dir, link, filepath.Join(dir, ".")} {
		refused(t, cli.Usage, []string{dir, "are one; name two"}, "--save", dir, "--history", other)
	}
	store(t, ck, "1", "1")
	refused(t, cli.Usage, []string{ck, "is the directory that --resume reads"}, "--resume", ck, "--history", ck)
	refused(t, cli.Usage, []string{"lies below --history " + link}, "--history", link, "--log", filepath.Join(dir, "log.ndjson"))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v are left behind, %v", left, err)
	}
	store(t, filepath.Join(dir, "ck"), "1", "1", "--history", dir, "--log", filepath.Join(dir, "log"))
}

func TestLogsOfTwoRunsDoNotMix(t *testing.T) {
	dir := t.TempDir()
	log, ck := filepath.Join(dir, "log"), filepath.Join(dir, "ck")
	store(t, ck, "1", "2", "--log", log)
	before, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, cli.Usage, []string{log, "of an earlier run", "--resume"}, "--log", log)
	if after, err := os.ReadFile(log); err != nil || string(after) != string(before) {
		t.Errorf("the log is now %q, %v", after, err)
	}
	store(t, ck, "1", "3", "--log", log, "--resume", ck)
	if after, err := os.ReadFile(log); err != nil || strings.Count(string(after), "\n") != 3 {
		t.Errorf("after a resumption: %q, %v", after, err)
	}
	// To open a pipe waits for a reader.
	refused(t, cli.CannotRun, []string{"log: "}, "--log", fifo(t, filepath.Join(dir, "pipe")))
	if code, _, stderr := call(t.Context(), "--steps", "1", "--log", "/dev/null"); code != cli.OK {
		t.Errorf("/dev/null: exit %d, %q", code, stderr)
	}
}

func TestRunsDoNotMixTheirSteps(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	store(t, a, "1", "3")
	store(t, b, "2", "1")
	// Another run, and this one from its beginning.
	for _, seed := range []string{"2", "1"} {
		refused(t, cli.Usage, []string{"save: " + a, checkpoint.DirName(3), "earlier run"}, "--seed", seed, "--save", a)
	}
	refused(t, cli.Usage, []string{"save: " + a, "earlier run"}, "--seed", "2", "--resume", b, "--save", a)
	refused(t, cli.Usage, []string{"save: " + a, checkpoint.DirName(3), "would be replaced"}, "--resume", filepath.Join(a, checkpoint.DirName(2)), "--save", a)
	// It may go on where it was.
	store(t, a, "1", "4", "--resume", a)

	// Steps of two runs in one directory: neither is taken.
	if err := os.Rename(filepath.Join(b, checkpoint.DirName(1)), filepath.Join(a, checkpoint.DirName(9))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(a, checkpoint.DirName(1))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(a, checkpoint.DirName(9)), filepath.Join(a, checkpoint.DirName(1))); err != nil {
		t.Fatal(err)
	}
	refused(t, cli.Usage, []string{a, "two runs", checkpoint.DirName(1), "seed is 2 there and 1 here"}, "--resume", a)
}

func TestResumeSaysWhatItTook(t *testing.T) {
	dir := t.TempDir()
	store(t, dir, "1", "2")
	for _, name := range []string{checkpoint.DirName(3), ".tmp-" + checkpoint.DirName(4)} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	code, _, stderr := call(t.Context(), "--steps", "3", "--resume", dir)
	want := "train: goes on from " + filepath.Join(dir, checkpoint.DirName(2)) + ", after step 2; passed over .tmp-step-00000004 (was not finished), " +
		"step-00000003 (has no checkpoint.json), step-00000001 (older)\n"
	if code != cli.OK || stderr != want {
		t.Errorf("exit code %d, stderr\n%s\nwant\n%s", code, stderr, want)
	}
	if _, _, stderr = call(t.Context(), "--steps", "3", "--resume", filepath.Join(dir, checkpoint.DirName(1))); strings.Contains(stderr, "passed over") {
		t.Errorf("what was named itself passes over nothing: %q", stderr)
	}
}
