package procs

import (
	"fmt"
	"strings"
)

// Lost is an agent that ended, or fell silent, while it was needed.
type Lost struct {
	Agent, Process int
	Host           string // where it is, if there may be several
	Ranks          []int  // of the run that it took part in, if any
	Why            error
}

// Error names the agent and its ranks.
func (l *Lost) Error() string {
	said := []string{fmt.Sprintf("process %d", l.Process)}
	if l.Host != "" {
		said[0] += " on " + l.Host
	}
	if len(l.Ranks) > 0 {
		said = append(said, "with "+list("rank", l.Ranks))
	}
	return fmt.Sprintf("agent %d (%s) %v", l.Agent, strings.Join(said, ", "), l.Why)
}

// Unwrap is how it ended.
func (l *Lost) Unwrap() error { return l.Why }
