//go:build linux

package procs

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
)

var update = flag.Bool("update", false, "rewrite testdata/drills.txt")

const drillHead = `# What becomes of a run when something happens to one of its agents: fault, phase and
# agent, what the run says, the exit codes of the other agents that it was told, how many
# steps the newest whole checkpoint has, and of how many every rank's history has something.
# 4 agents with a rank each, 6 steps, a checkpoint after every second; phases in the middle are
# those of the fourth step. A run that did not begin has told its agents nothing. A full
# disk is a limit of the size of files. Made by
# go test ./core/launch/procs -run TestDrills -update; keep a line that changes only if
# you understand why.
`

// Every fault in every phase, of the agent that has rank 0 and of another one, has the
// outcome that was reviewed.
func TestDrills(t *testing.T) {
	var all []fault
	for _, what := range faults() {
		for _, phase := range phases() {
			for _, agent := range []int{0, 2} {
				all = append(all, fault{What: what, Phase: phase, Agent: agent})
			}
		}
	}
	all = race.Some(9, all)
	lines, at := make([]string, len(all)), make(chan struct{}, 8)
	var rows sync.WaitGroup
	for i, f := range all {
		f.Dir = t.TempDir()
		rows.Go(func() {
			at <- struct{}{}
			lines[i] = drilled(t, f)
			<-at
		})
	}
	rows.Wait()
	const path = "testdata/drills.txt"
	if *update && !t.Failed() && !race.Enabled {
		if err := os.WriteFile(path, []byte(drillHead+strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	reviewed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if !strings.Contains(string(reviewed), "\n"+line) {
			t.Errorf("not as reviewed: %s", line)
		}
	}
	if n := strings.Count(string(reviewed), "\n") - strings.Count(drillHead, "\n"); n != len(lines) && !race.Enabled {
		t.Errorf("%d lines were reviewed, there are %d", n, len(lines))
	}
}

// drilled makes one run and says what became of it.
func drilled(t *testing.T, f fault) string {
	args, err := f.args()
	if err != nil {
		t.Error(err)
		return ""
	}
	begun := time.Now()
	team, err := Start(t.Context(), Options{Agents: drillAgents, Args: args, Identity: "a program", Deadline: drillSilence})
	codes, outcome := "-", ""
	if err == nil {
		var o = order{Plan: drillPlan, Steps: drillSteps}
		out, failed := team.Run(t.Context(), o.task(t))
		err = failed
		code := 4
		if err == nil {
			code = 0
			print, ferr := spec.FingerprintAt(out.History, drillSteps-1)
			if ferr != nil {
				t.Errorf("%v: %v", f, ferr)
			}
			outcome = print.String()
		}
		team.Close(code)
		gone(t, team)
		codes = ""
		for i, c := range team.children {
			if i != f.Agent {
				codes += fmt.Sprintf(" %d", c.cmd.ProcessState.ExitCode())
			}
		}
	}
	limit := 2*drillSilence + 4*time.Second + patienceToEnd // its own time, while others run; then its end
	if race.Enabled {
		limit *= 3
	}
	if took := time.Since(begun); took > limit {
		t.Errorf("%v: took %v", f, took)
	}
	said := "done"
	switch {
	case err != nil:
		said = plainly(err.Error(), f.Dir)
	case outcome != undisturbed(t):
		said = "another result: " + outcome
	}
	return fmt.Sprintf("%v: %s; others%s; %s\n", f, said, codes, f.left(t))
}

// undisturbed is the fingerprint of the run that nothing happens to.
var undisturbed = func() func(t *testing.T) string {
	var once sync.Once
	var print string
	return func(t *testing.T) string {
		once.Do(func() {
			o := order{Plan: "dp=1", Steps: drillSteps}
			team, err := Start(t.Context(), options(1, ordinary))
			if err != nil {
				t.Error(err)
				return
			}
			defer team.Close(0)
			out, err := team.Run(t.Context(), o.task(t))
			if err != nil {
				t.Error(err)
				return
			}
			f, err := spec.FingerprintAt(out.History, drillSteps-1)
			if err != nil {
				t.Error(err)
			}
			print = f.String()
		})
		return print
	}
}()

// plainly is an error without what is another one in each run.
func plainly(s, dir string) string {
	s = strings.ReplaceAll(s, dir, "DIR")
	s = regexp.MustCompile(`process \d+`).ReplaceAllString(s, "process P")
	s = regexp.MustCompile(`(/\.tmp-rank-\S*-)\d+`).ReplaceAllString(s, "${1}N")
	return strings.ReplaceAll(s, "\n", " | ")
}

// left says what a run has left behind that can be used.
func (f fault) left(t *testing.T) string {
	stored := 0
	list, err := checkpoint.List(filepath.Join(f.Dir, "save"))
	if err != nil {
		t.Errorf("%v: %v", f, err)
	}
	for _, l := range list {
		if l.Err != nil {
			if l.Err.Error() != "was not finished" {
				t.Errorf("%v: %s: %v", f, l.Dir, l.Err)
			}
			continue
		}
		c, err := checkpoint.Open(l.Dir)
		if err != nil {
			t.Errorf("%v: %v", f, err)
			continue
		}
		stored = max(stored, c.Manifest.Step)
		c.Close()
	}
	all, err := trace.Load(filepath.Join(f.Dir, "history"))
	if err != nil {
		empty := strings.Contains(err.Error(), "is empty") // where there was no room for its first line
		if !errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), "no history") && !empty {
			t.Errorf("%v: %v", f, err)
		}
		return fmt.Sprintf("stored %d, recorded 0", stored)
	}
	h, steps := all[0], drillSteps
	for _, d := range h.Damage {
		t.Errorf("%v: %s", f, d)
	}
	for _, r := range h.Missing() {
		t.Errorf("%v: rank %d has no history", f, r)
	}
	for _, events := range h.Ranks {
		last := 0
		for _, e := range events {
			last = max(last, e.Step+1)
		}
		steps = min(steps, last)
	}
	return fmt.Sprintf("stored %d, recorded %d", stored, steps)
}
