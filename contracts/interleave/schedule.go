package interleave

import (
	"fmt"
	"math/rand/v2"
)

// Schedule says who goes on where several goroutines could.
type Schedule struct {
	Policy Policy
	Seed   uint64 // of Random
}

// Policy is a rule for the choice.
type Policy string

// The policies. All but Random choose the lowest rank among those that they
// prefer, and a rank before what runs beside it.
const (
	Random      Policy = "seed"                // each with equal probability
	Lowest      Policy = "lowest rank first"   // a rank goes on only where all lower ones wait
	Highest     Policy = "highest rank first"  // the reverse
	QueuesLast  Policy = "reductions late"     // what runs beside a rank goes on only where all ranks wait
	QueuesFirst Policy = "reductions at once"  // a rank goes on only where all that run beside ranks wait
	RoundRobin  Policy = "one after the other" // each goes on once before any does again
)

// String is the policy, and the seed where it counts.
func (s Schedule) String() string {
	if s.Policy == Random {
		return fmt.Sprintf("%s %d", s.Policy, s.Seed)
	}
	return string(s.Policy)
}

// chooser makes the choice of a schedule: it is given the tasks that could go on,
// by rank and then by age, and who had the last turn.
func (s Schedule) chooser() func(able []*task, last *task) *task {
	switch s.Policy {
	case Highest:
		return func(able []*task, _ *task) *task { return able[len(able)-1] }
	case QueuesLast:
		return func(able []*task, _ *task) *task { return first(able, false) }
	case QueuesFirst:
		return func(able []*task, _ *task) *task { return first(able, true) }
	case RoundRobin:
		return next
	case Random:
		r := rand.New(rand.NewPCG(s.Seed, 0))
		return func(able []*task, _ *task) *task { return able[r.IntN(len(able))] }
	}
	return func(able []*task, _ *task) *task { return able[0] }
}

// first is the first task that runs beside a rank, or the first that does not;
// the first of all where there is none.
func first(able []*task, beside bool) *task {
	for _, t := range able {
		if t.beside == beside {
			return t
		}
	}
	return able[0]
}

// next is the first task after last, in their order, and then from the start.
func next(able []*task, last *task) *task {
	if last != nil {
		for _, t := range able {
			if t.rank > last.rank || t.rank == last.rank && t.id > last.id {
				return t
			}
		}
	}
	return able[0]
}
