package procs

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/core/train"
)

// Options are what a team is started with.
type Options struct {
	// Agents is the number of processes, at least 1.
	Agents int
	// Args are what each is started with, Stdin is what it reads there, and Environment
	// is added to this process's.
	Args        []string
	Stdin       []byte
	Environment []string
	// Found, where not nil, has started all agents but the first, of which this process
	// is the driver.
	Found *Found
	// Lost, where not nil, is told at once of an agent that is: a launcher may leave no
	// time for more.
	Lost func(*Lost)
	// Shared are directories that must be those of all agents, wherever they are.
	Shared []string
	// Identity is what all must agree on: a hash of program and configuration.
	Identity string
	// Deadline bounds how long the agents may take to come, and say nothing; 0 and more
	// than a default are that: MaxJoin and MaxSilence.
	Deadline time.Duration
}

// MaxAgents bounds a team, and MaxStarted those of one that a driver starts, all on its
// host.
const (
	MaxAgents  = 1 << 16
	MaxStarted = 1 << 10
)

// CheckAgents refuses a number of agents that cannot be; started says that a driver is to
// start them.
func CheckAgents(n int, started bool) error {
	switch {
	case n < 1:
		return fmt.Errorf("agents=%d: must be at least 1", n)
	case n > MaxAgents:
		return fmt.Errorf("agents=%d: must be at most %d", n, MaxAgents)
	case started && n > MaxStarted:
		return fmt.Errorf("agents=%d: at most %d are started, all on this host", n, MaxStarted)
	}
	return nil
}

// Bounds of what agents may take, where no shorter deadline is given.
const (
	MaxJoin    = time.Minute
	MaxSilence = 30 * time.Second
)

// within is a deadline, or a bound that is shorter or stands for none.
func within(deadline, most time.Duration) time.Duration {
	if deadline <= 0 || deadline > most {
		return most
	}
	return deadline
}

// Task is a run for agents.
type Task struct {
	// What says to agents what it is.
	What json.RawMessage
	// World is the number of its ranks: agents that have none take no part. 0 is one
	// for every agent, and more.
	World int
	// Dir is a directory that all agents may use for it; empty is none.
	Dir string
	// Progress and Stop are those of a run in one process.
	Progress func(train.Progress)
	Stop     func(step int) bool
}

// Deal lists the ranks of a world that each agent carries: one after the other, so
// that rank 0 is the first agent's.
func Deal(agents, size int) [][]int {
	out := make([][]int, agents)
	for r := range size {
		out[r%agents] = append(out[r%agents], r)
	}
	return out
}

// Seating says which rank is in which agent, as Deal deals them.
func Seating(dealt [][]int) string {
	var out []string
	for i, ranks := range dealt {
		if len(ranks) > 0 {
			out = append(out, fmt.Sprintf("agent %d has %s", i, list("rank", ranks)))
		}
	}
	return strings.Join(out, ", ")
}

// list is "rank 3" or "ranks 1, 3".
func list(what string, numbers []int) string {
	if len(numbers) == 1 {
		return fmt.Sprintf("%s %d", what, numbers[0])
	}
	return what + "s " + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}
