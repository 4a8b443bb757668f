//go:build linux

package outage

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that is stopped in the middle of a run has said nothing within the deadline:
// all others end with 4, and name it. When it goes on after that it ends with 4 too.
func TestStopped(t *testing.T) {
	line := "--plan dp=4,zero=1 --steps 100000 --deadline 6s"
	for _, x := range []struct {
		name     string
		launched bool
		victim   role
		says     string
	}{
		{"an agent", false, role{what: roleAgent, agent: 1}, "agent 1 (process P, with rank 1) has said nothing for 6s"},
		{"an agent of a launcher", true, role{of: 1, what: roleWork}, "agent 1 (process P, with rank 1) has said nothing for 6s"},
		{"the driver", false, role{what: roleWork}, "hears nothing of its driver"},
		{"the driver under a launcher", true, role{what: roleWork}, "hears nothing of its driver"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			h := show{command: "train", line: line, launched: x.launched}
			if !h.launched {
				h.line += fmt.Sprintf(" --launch procs --agents %d", agents)
			}
			commands := h.start(s)
			for !strings.Contains(commands[0].stdout.String(), "step 3/") {
				if time.Since(commands[0].begun) > time.Minute {
					t.Fatalf("no step is done: %s", commands[0].said())
				}
				time.Sleep(time.Millisecond)
			}
			pid := s.signal(x.victim, commands, syscall.SIGSTOP)
			until := time.Now().Add(12 * time.Second)
			said := ""
			for i, c := range commands {
				if i == x.victim.of && x.victim.what == roleWork {
					continue
				}
				if !c.wait(until) {
					t.Fatalf("command %d has not ended within twice the deadline: %s", i, c.stderr.String())
				}
				if code := c.ProcessState.ExitCode(); code != 4 {
					t.Errorf("command %d ended with %d", i, code)
				}
				said += c.stderr.String()
			}
			if x.victim.what == roleWork {
				for len(s.processes()) > 2 && time.Now().Before(until) { // it, and the command that waits for it
					time.Sleep(5 * time.Millisecond)
				}
				if left := s.processes(); len(left) > 2 {
					t.Errorf("processes %v go on", left)
				}
				if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				c := commands[x.victim.of]
				if !c.wait(time.Now().Add(12*time.Second)) || c.ProcessState.ExitCode() != 4 {
					t.Errorf("it goes on, or ended with %v", c.ProcessState)
				}
				said += c.stderr.String()
			}
			s.empty(time.Now().Add(5 * time.Second))
			if says := strings.ReplaceAll(x.says, "process P", fmt.Sprintf("process %d", pid)); !strings.Contains(said, says) {
				t.Errorf("%q is not said: %s", says, said)
			}
		})
	}
}
