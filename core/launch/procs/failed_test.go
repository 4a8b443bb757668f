//go:build unix

package procs

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A part that goes wrong before its ranks have met the others is what the run says, and at
// once: those that wait for them give up. The team does the next task.
func TestFailedPartIsTheCause(t *testing.T) {
	team := started(t, 3)
	for agent := range 3 {
		begun := time.Now()
		_, err := team.Run(t.Context(), order{Plan: "dp=4", Steps: 1, Fail: agent + 1}.task(t))
		if err == nil || err.Error() != "no work today" {
			t.Errorf("agent %d does not work: %v", agent, err)
		}
		if took := time.Since(begun); took > team.seat.Join/2 {
			t.Errorf("agent %d does not work: it took %v to say so", agent, took)
		}
	}
	if _, err := team.Run(t.Context(), order{Plan: "dp=4", Steps: 1}.task(t)); err != nil {
		t.Error(err)
	}
}

// Where agents may be on several hosts, what the run says names the one that is to blame, and
// that one says it too: no other does.
func TestFailedPartNamesItsHost(t *testing.T) {
	o := apart(t, 2, free(t, "127.0.0.1"))
	other := elsewhere(t, o, 1, ordinary)
	team, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fail int
		want string
	}{
		{1, fmt.Sprintf("agent 0 (process %d on %s): no work today", team.children[0].pid, team.children[0].hello.Host)},
		{2, fmt.Sprintf("agent 1 (process %d on other1): no work today", other.Process.Pid)},
	} {
		if _, err := team.Run(t.Context(), order{Plan: "dp=2", Steps: 1, Fail: c.fail}.task(t)); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	team.Close(4)
	_ = other.Wait() // with 4
	if said := other.Stderr.(*strings.Builder).String(); strings.Count(said, "failed: ") != 1 || !strings.Contains(said, "failed: no work today\n") {
		t.Errorf("agent 1 says %q", said)
	}
}
