//go:build unix

package procs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// A run in processes has the bits of one in this process, and says where ranks were.
func TestOneAnswer(t *testing.T) {
	o := order{Plan: "dp=2,tp=2,pp=2,zero=1", Steps: 3}
	cfg, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	want, err := launch.Local(t.Context(), cfg, data.Default(), onRef())
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := func(h *trace.History) string {
		f, err := spec.FingerprintAt(h, o.Steps-1)
		if err != nil {
			t.Fatal(err)
		}
		return f.String()
	}
	team := started(t, 3)
	for range 2 {
		var steps []int
		task := o.task(t)
		task.Progress = func(p train.Progress) { steps = append(steps, p.Step) }
		got, err := team.Run(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		if f := fingerprint(got.History); f != fingerprint(want.History) {
			t.Errorf("%s, in one process %s", f, fingerprint(want.History))
		}
		if !slices.Equal(got.Loss, want.Loss) || !slices.Equal(steps, []int{0, 1, 2}) {
			t.Errorf("losses %v, want %v; progress of steps %v", got.Loss, want.Loss, steps)
		}
		for rank := range cfg.Plan.World() {
			if p := got.History.Origin(rank).Process; p != rank%3+1 {
				t.Errorf("rank %d was in process %d", rank, p)
			}
			if a, b := kinds(got.History.Ranks[rank]), kinds(want.History.Ranks[rank]); a != b {
				t.Errorf("rank %d recorded %s, in one process %s", rank, a, b)
			}
		}
	}
}

// kinds counts events by kind and step.
func kinds(events []trace.Event) string {
	n := map[string]int{}
	for _, e := range events {
		n[fmt.Sprintf("%s of step %d", e.Kind, e.Step)]++
	}
	return fmt.Sprint(n)
}

// An agent that ends, is killed or stopped in the middle of a run is named with its
// ranks; what those recorded of the steps before is there; all others end with the
// driver's exit code.
func TestLostAgentIsNamed(t *testing.T) {
	for _, x := range []struct {
		agent  int
		signal syscall.Signal
		says   string
	}{{0, syscall.SIGKILL, "ranks 0, 3) was ended by signal 9"}, {2, syscall.SIGKILL, "rank 2) was ended by signal 9"}, {1, syscall.SIGSTOP, "rank 1) has said nothing for 4s"}} {
		t.Run(fmt.Sprint(x.agent, x.signal), func(t *testing.T) {
			opts := options(3, ordinary)
			if x.signal == syscall.SIGSTOP {
				opts.Deadline = 4 * time.Second
			}
			team, err := Start(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			o := order{Plan: "dp=4,zero=1", Steps: 100000}
			task := o.task(t)
			task.Progress = func(p train.Progress) {
				if p.Step == 4 {
					_ = team.children[x.agent].cmd.Process.Signal(x.signal)
				}
			}
			out, err := team.Run(t.Context(), task)
			var lost *Lost
			if !errors.As(err, &lost) || lost.Agent != x.agent || !strings.Contains(err.Error(), x.says) {
				t.Errorf("%v, want %q", err, x.says)
			}
			last := -1
			for _, e := range out.History.Ranks[x.agent] {
				last = max(last, e.Step)
			}
			if last < 3 {
				t.Errorf("what rank %d recorded ends with step %d", x.agent, last)
			}
			if _, again := team.Run(t.Context(), task); !errors.As(again, &lost) {
				t.Errorf("a later run: %v", again)
			}
			begun := time.Now()
			team.Close(4)
			gone(t, team)
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("the others took %v to end", took)
			}
			for i, c := range team.children {
				if code := c.cmd.ProcessState.ExitCode(); i != x.agent && code != 4 {
					t.Errorf("agent %d ended with %d", i, code)
				}
			}
		})
	}
}

// An agent that takes its time to end, its connection closed, ends with the code that it
// was told.
func TestLateToEnd(t *testing.T) {
	team, err := Start(t.Context(), Options{Agents: 2, Args: []string{late}, Identity: "a program"})
	if err != nil {
		t.Fatal(err)
	}
	team.Close(3)
	gone(t, team)
	for i, c := range team.children {
		if code := c.cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("agent %d ended with %d", i, code)
		}
	}
}

// A run that the lost agent has no part in, and that ends soon, ends as it would, and is
// the last.
func TestRunWithoutTheLostAgent(t *testing.T) {
	team := started(t, 2)
	o := order{Plan: "dp=1", Steps: 12}
	task, steps := o.task(t), 0
	task.Progress = func(p train.Progress) {
		if steps++; p.Step == o.Steps-3 {
			_ = team.children[1].cmd.Process.Kill()
		}
	}
	out, err := team.Run(t.Context(), task)
	if err != nil || steps != o.Steps || out.History.CutOff() != "" {
		t.Errorf("%v after %d steps", err, steps)
	}
	var lost *Lost
	if _, err := team.Run(t.Context(), task); !errors.As(err, &lost) || lost.Agent != 1 {
		t.Errorf("a later run: %v", err)
	}
}

// Whichever agent is killed whenever, the driver names it and nothing is left.
func TestKilledAtAnyMoment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	const deadline = 5 * time.Second
	for i := range 12 {
		agent, after := i%3, time.Duration(r.IntN(400))*time.Millisecond
		opts := options(3, ordinary)
		opts.Deadline = deadline
		team, err := Start(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(after, func() { _ = team.children[agent].cmd.Process.Kill() })
		begun := time.Now()
		_, err = team.Run(t.Context(), order{Plan: "dp=2,tp=2,pp=2,zero=1", Steps: 100000}.task(t))
		team.Close(4)
		timer.Stop()
		var lost *Lost
		if !errors.As(err, &lost) || lost.Agent != agent {
			t.Errorf("seed %d, agent %d killed after %v: %v", seed, agent, after, err)
		}
		if took := time.Since(begun) - after; took > 2*deadline {
			t.Errorf("seed %d, agent %d killed after %v: it took %v", seed, agent, after, took)
		}
		gone(t, team)
	}
}

// Who is of another program, does not come or ends before, is named, and the others end.
func TestWhoDoesNotJoin(t *testing.T) {
	for as, says := range map[string]string{
		stranger: "was refused: program and configuration is another program there and a program here",
		mute:     "did not come within 1s",
		early:    "ended with exit code 7",
	} {
		opts := options(2, as)
		if as == mute {
			opts.Deadline = time.Second
		}
		begun := time.Now()
		team, err := Start(t.Context(), opts)
		if err == nil {
			team.Close(0)
			t.Errorf("%s: has joined", as)
			continue
		}
		if !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "agent ") {
			t.Errorf("%s: %v, want %q", as, err, says)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s: it took %v", as, took)
		}
	}
	if _, err := Start(t.Context(), options(0, ordinary)); err == nil {
		t.Error("a team of none")
	}
}

// What goes wrong in one task is its error, and the team does the next one.
func TestFailedTaskIsNotTheTeams(t *testing.T) {
	team := started(t, 2)
	for fail, says := range map[int]string{2: "no work today", -2: "panic: at work"} {
		task := order{Plan: "dp=1", Steps: 1, Fail: fail}.task(t)
		task.World = 0
		if _, err := team.Run(t.Context(), task); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	task := order{Plan: "dp=2", Steps: 100000}.task(t)
	why := errors.New("enough")
	task.Progress = func(p train.Progress) {
		if p.Step == 3 {
			cancel(why)
		}
	}
	out, err := team.Run(ctx, task)
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	for rank, events := range out.History.Ranks { // of the last step too, which no later one has had streamed
		if !slices.ContainsFunc(events, func(e trace.Event) bool { return e.Step == 3 && e.Kind == trace.KindChanged }) {
			t.Errorf("rank %d: what its last step has changed is not recorded: %s", rank, kinds(events))
		}
	}
	stopped := order{Plan: "dp=2", Steps: 50}.task(t)
	stopped.Stop = (&launch.Stop{Wanted: func() bool { return true }}).Ask
	if out, err = team.Run(t.Context(), stopped); err != nil {
		t.Fatal(err)
	}
	for e := range out.History.All {
		if e.Step > 0 || e.Kind == trace.KindEnd {
			t.Fatalf("%s of step %d of a run that was stopped after the first", e.Kind, e.Step)
		}
	}
}

// Agents do not outlive a driver that is killed, and remove what it made.
func TestNoOrphans(t *testing.T) {
	cmd := exec.Command(Executable(), driver)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids [2]int
	for i := range pids {
		if _, err := fmt.Fscanln(pipe, &pids[i]); err != nil {
			t.Fatal(err)
		}
	}
	var dirs [2]string
	for i := range dirs {
		if _, err := fmt.Fscanln(pipe, &dirs[i]); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dirs[i]); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	defer func() {
		if _, err := os.Stat(filepath.Dir(dirs[0])); !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dirs[0]) != filepath.Dir(dirs[1]) {
			t.Errorf("%q is left: %v", dirs, err)
		}
	}()
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left := slices.DeleteFunc(slices.Clone(pids[:]), isGone)
		if len(left) == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("processes %v outlive their driver", left)
		}
	}
}

func TestSeating(t *testing.T) {
	if got, want := Seating(Deal(3, 7)), "agent 0 has ranks 0, 3, 6, agent 1 has ranks 1, 4, agent 2 has ranks 2, 5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := Seating(Deal(3, 2)), "agent 0 has rank 0, agent 1 has rank 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What stays on one host carries no checksums, and all else does.
func TestSums(t *testing.T) {
	for hosts, want := range []bool{1: false, 2: true, 3: true} {
		if c := (&crew{Hosts: hosts}); c.sums() != want {
			t.Errorf("%d hosts: checksums %t", hosts, c.sums())
		}
	}
}

// A team lasts longer than its deadline, whatever its agents are at: the driver says that
// it lives, and so do they.
func TestOutlastsItsDeadline(t *testing.T) {
	opts := options(2, ordinary)
	opts.Deadline = 2 * time.Second
	team, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close(0)
	enough := errors.New("enough")
	ctx, stop := context.WithTimeoutCause(t.Context(), 2*opts.Deadline, enough)
	defer stop()
	if _, err := team.Run(ctx, order{Plan: "dp=2", Steps: 1000000}.task(t)); !errors.Is(err, enough) {
		t.Errorf("%v, want that it goes on", err)
	}
	if err := team.Over(); err != nil {
		t.Error(err)
	}
}

// A team has agents, and no more than can be.
func TestCheckAgents(t *testing.T) {
	for _, x := range []struct {
		n       int
		started bool
		says    string
	}{{0, false, "must be at least 1"}, {-1, true, "must be at least 1"}, {1, true, ""}, {MaxStarted, true, ""}, {MaxStarted + 1, true, "at most 1024 are started"},
		{MaxStarted + 1, false, ""}, {MaxAgents, false, ""}, {MaxAgents + 1, false, "must be at most 65536"}, {1 << 40, true, "must be at most 65536"}} {
		err := CheckAgents(x.n, x.started)
		if (err == nil) != (x.says == "") || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%d agents, started %t: %v, want %q", x.n, x.started, err, x.says)
		}
	}
	if _, err := Start(t.Context(), options(MaxStarted+1, ordinary)); err == nil {
		t.Error("a team of more than are started")
	}
}
