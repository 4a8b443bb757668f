//go:build unix

package procs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/train"
)

// launched is agent n of a job that a launcher has started.
func launched(t *testing.T, n, agents int) *Found {
	t.Helper()
	return &Found{Source: "a test", Agent: n, Agents: agents, Local: -1, Job: t.Name(), Deadline: 5 * time.Second}
}

// byLauncher starts agents from 1 on as a launcher does, each with its variables.
func byLauncher(t *testing.T, agents int, as string) []*exec.Cmd {
	t.Helper()
	var numbers []int
	for n := 1; n < agents; n++ {
		numbers = append(numbers, n)
	}
	return numbered(t, agents, as, numbers...)
}

// numbered starts agents of given numbers.
func numbered(t *testing.T, agents int, as string, numbers ...int) (all []*exec.Cmd) {
	t.Helper()
	for _, n := range numbers {
		cmd := exec.Command(Executable(), as)
		cmd.Env = append(os.Environ(), "TEST_LAUNCHED="+t.Name(), "TEST_AGENT="+string(rune('0'+n)), "TEST_AGENTS="+string(rune('0'+agents)))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
	}
	return all
}

// Agents that a launcher has started find their driver, do its tasks, and end with its
// exit code; one that is killed is named.
func TestLaunchedAgents(t *testing.T) {
	for _, kill := range []bool{false, true} {
		others := byLauncher(t, 3, ordinary)
		opts := options(3, ordinary)
		opts.Found = launched(t, 0, 3)
		var told *Lost
		opts.Lost = func(l *Lost) { told = l }
		// What a run before has left leads nowhere, and is replaced.
		if _, err := opts.Found.announce(Seat{Driver: "127.0.0.1:1", Agents: 3, Silence: time.Second}); err != nil {
			t.Fatal(err)
		}
		team, err := Start(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(opts.Found.place()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is left: %v", err)
		}
		o := order{Plan: "dp=4,zero=1", Steps: 3}
		if kill {
			o.Steps = 100000
		}
		task := o.task(t)
		task.Progress = func(p train.Progress) {
			if kill && p.Step == 3 {
				_ = others[1].Process.Signal(syscall.SIGKILL)
			}
		}
		out, err := team.Run(t.Context(), task)
		var lost *Lost
		switch {
		case kill && (!errors.As(err, &lost) || lost.Agent != 2 || lost.Process != others[1].Process.Pid || !strings.Contains(err.Error(), "with rank 2) ended without a word")):
			t.Errorf("%v", err)
		case !kill && err != nil:
			t.Error(err)
		case !kill:
			cfg, _ := o.config()
			want, err := launch.Local(t.Context(), cfg, data.Default(), onRef())
			if err != nil {
				t.Fatal(err)
			}
			a, _ := spec.FingerprintAt(out.History, 2)
			if b, _ := spec.FingerprintAt(want.History, 2); a != b {
				t.Errorf("%s, in one process %s", a, b)
			}
		}
		if kill != (told != nil) || kill && told.Agent != 2 {
			t.Errorf("told of %v", told)
		}
		team.Close(3)
		for i, cmd := range others {
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 3 && !(kill && i == 1) {
				t.Errorf("agent %d ended with %d", i+1, code)
			}
		}
	}
}

// An agent of another program is refused at once, with both values, on both sides; one
// that does not come is named.
func TestLaunchedStrangers(t *testing.T) {
	for as, says := range map[string]string{
		stranger: "was refused: program and configuration is another program there and a program here",
		early:    "agent 1 did not come within 1s",
	} {
		others := byLauncher(t, 2, as)
		opts := options(2, ordinary)
		opts.Found = launched(t, 0, 2)
		if as == early {
			opts.Deadline = time.Second
		}
		begun := time.Now()
		team, err := Start(t.Context(), opts)
		if err == nil {
			team.Close(0)
		}
		if err == nil || !strings.Contains(err.Error(), says) || time.Since(begun) > 4*time.Second {
			t.Errorf("%s: %v after %v", as, err, time.Since(begun))
		}
		if _ = others[0].Wait(); as == stranger && others[0].ProcessState.ExitCode() != 4 {
			t.Errorf("the stranger ended with %d", others[0].ProcessState.ExitCode())
		}
	}
}

// Two agents that were told the same number: that is said at once.
func TestLaunchedTwice(t *testing.T) {
	numbered(t, 3, ordinary, 1, 1)
	opts := options(3, ordinary)
	opts.Found = launched(t, 0, 3)
	begun := time.Now()
	team, err := Start(t.Context(), opts)
	if err == nil {
		team.Close(0)
	}
	if err == nil || !strings.Contains(err.Error(), "was refused: agent 1 (process ") || !strings.Contains(err.Error(), "has come already") || time.Since(begun) > 4*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}

// An agent whose driver is gone removes the file of its job, unless that is of another
// run by now.
func TestClear(t *testing.T) {
	f := launched(t, 1, 2)
	for run, left := range map[string]bool{"this": false, "another": true} {
		gone, err := f.announce(Seat{Run: run, Agents: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer gone()
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.MkdirAll(filepath.Join(dir, "in", "it"), 0o700); err != nil {
			t.Fatal(err)
		}
		s := &Seat{Run: "this", Leaves: []string{dir, f.place(), filepath.Join(dir, "none")}}
		s.clear()
		if _, err := os.Stat(f.place()); (err == nil) != left {
			t.Errorf("of %s run: %v", run, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
}

// A file that others may have written or read is not believed, and without a driver
// nobody waits for ever.
func TestMeetingIsPrivate(t *testing.T) {
	f := launched(t, 1, 2)
	f.Deadline = 300 * time.Millisecond
	nobody := func(context.Context, *Job) (*launch.Outcome, error) { return nil, nil }
	if _, err := f.Serve(t.Context(), "", nobody); err == nil || !strings.Contains(err.Error(), "a test: agent 1 of 2: did not reach its driver by "+f.place()) {
		t.Errorf("%v", err)
	}
	gone, err := f.announce(Seat{Agents: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer gone()
	info, err := os.Stat(f.place())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if s, err := f.read(); err != nil || s.Agent != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := os.Chmod(f.place(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Serve(t.Context(), "", nobody); err == nil || !strings.Contains(err.Error(), "its user alone") {
		t.Errorf("%v", err)
	}
	other := launched(t, 1, 3)
	_ = os.Chmod(f.place(), 0o600)
	if _, err := other.read(); err == nil || !strings.Contains(err.Error(), "is of 2 agents") {
		t.Errorf("%v", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := f.read(); err != nil {
				t.Error(err)
			}
		})
		if _, err := f.announce(Seat{Agents: 2}); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}
