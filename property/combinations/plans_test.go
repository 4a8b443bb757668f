package combinations_test

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/plan"
)

// fixture is a fixture's plans: all of them must give one fingerprint.
type fixture struct {
	name string
	most int // data-parallel ranks: the logical workers
}

func fixtures() []fixture { return []fixture{{"nano", 8}, {"odd", 4}} }

// plans lists every axis by itself, then products. A product of the list has at
// most 16 ranks.
func (f fixture) plans() []string {
	return append(f.single(), products(f.most)...)
}

// single are the plans along one axis, with every stage and form of ZeRO, every
// schedule, and 1 to 4 micro-batches per logical worker.
func (f fixture) single() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for dp := 1; dp <= f.most; dp *= 2 {
		add("dp=%d", dp)
		for zero := 1; zero <= 3 && dp > 1; zero++ {
			add("dp=%d,zero=%d", dp, zero)
		}
	}
	for _, form := range []string{plan.ShardRoundRobin, plan.ShardContiguous, plan.ShardBalanced} {
		add("dp=2,zero=1,shard=%s", form)
		add("dp=4,zero=1,shard=%s", form)
	}
	add("dp=2,zero=3,shard=tensors")
	add("dp=4,zero=3,shard=tensors")
	for m := 2; m <= 4; m++ {
		add("dp=4,microbatches=%d", m*f.most/4)
		add("dp=%d,zero=%d,microbatches=%d", f.most, m-1, m)
		add("pp=2,microbatches=%d", m*f.most)
	}
	add("tp=2")
	add("tp=4")
	add("tp=2,vocab=parallel")
	add("tp=4,vocab=parallel")
	for pp := 2; pp <= 4; pp++ {
		add("pp=%d", pp)
		add("pp=%d,schedule=gpipe", pp)
	}
	add("pp=2,schedule=interleaved,virtual=2")
	return out
}

// products combines the axes; stages, forms, schedules and the cut of the
// vocabulary take turns, and the plans with all three axes have every stage.
func products(most int) []string {
	var out []string
	turn := 0
	for dp := 1; dp <= most; dp *= 2 {
		for tp := 1; tp <= 4; tp *= 2 {
			for pp := 1; pp <= 4; pp++ {
				if alone := dp*tp*pp == max(dp, tp, pp); alone || dp*tp*pp > 16 {
					continue
				}
				zeros := []int{0}
				switch {
				case dp > 1 && tp > 1 && pp > 1:
					zeros = []int{0, 1, 2, 3}
				case dp > 1:
					zeros = []int{turn % 4, (turn + 2) % 4}
				}
				for _, zero := range zeros {
					out = append(out, product(dp, tp, pp, zero, turn))
					turn++
				}
			}
		}
	}
	return out
}

func product(dp, tp, pp, zero, turn int) string {
	s := fmt.Sprintf("dp=%d,tp=%d,pp=%d", dp, tp, pp)
	if zero > 0 {
		s += fmt.Sprintf(",zero=%d", zero)
	}
	forms := map[int][]string{1: {plan.ShardFlat, plan.ShardBalanced, plan.ShardRoundRobin}, 3: {plan.ShardFlat, plan.ShardTensors}}
	if known := forms[zero]; known != nil {
		s += ",shard=" + known[turn/2%len(known)]
	}
	if tp > 1 && turn%2 == 1 {
		s += ",vocab=parallel"
	}
	switch {
	case pp == 2 && turn%3 == 1:
		s += ",schedule=interleaved,virtual=2"
	case pp > 1 && turn%3 == 2:
		s += ",schedule=gpipe"
	}
	return s
}
