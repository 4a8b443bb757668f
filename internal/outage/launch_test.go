//go:build linux

package outage

import (
	"strings"
	"testing"
	"time"
)

// A launcher that gives all processes of a host the same number there, as one does that
// knows nothing of hosts: nothing is run, and who has it twice is said.
func TestAllLocalRanksAreZero(t *testing.T) {
	s := newStage(t)
	all := s.launched(3, "train", "--plan dp=3 --steps 100000 --deadline 10s", "LOCAL_RANK=0")
	said, until := "", time.Now().Add(30*time.Second)
	for i, c := range all {
		if !c.wait(until) {
			t.Fatalf("command %d does not end: %s", i, c.said())
		}
		if code := c.ProcessState.ExitCode(); code != 4 {
			t.Errorf("command %d ended with %d: %s", i, code, c.said())
		}
		said += c.stderr.String()
	}
	s.empty(until)
	if n := strings.Count(said, "was refused: local rank 0 of host "); n != 1 || !strings.Contains(all[0].stderr.String(), " too\n") || strings.Contains(all[0].said(), "step ") {
		t.Errorf("it is said %d times: %s", n, said)
	}
}
