package contracts

import (
	"context"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// A fault that is there from the first step on is named there, and hides that a
// clause no longer looks at the steps that follow. So each is judged once more as if
// it had begun in the last one, or else in the second: as histories are data, the
// unbroken run up to there and the broken one from there on do.

// late is the last step, of these two, in which a fault may begin and the clause that
// must name it does; 0 for none, nil where the case has no second step.
func (b *beside) late(ctx context.Context, a *attempt) (*int, error) {
	clean, broken := a.clean.History(contract.Test), a.broken.History(contract.Test)
	if a.own == nil || clean == nil || broken == nil {
		return nil, nil
	}
	last := lastStep(clean)
	if last < 1 {
		return nil, nil
	}
	for _, from := range slices.Compact([]int{last, 1}) {
		e := a.broken.Evidence(b.o.Oracle)
		e.Histories[contract.Test] = graft(clean, broken, from)
		e.Clauses = []string{a.mutant.Clause}
		results, err := judge(ctx, a.own.Contract, []contract.Evidence{e})
		if err != nil {
			return nil, err
		}
		s := sight{results: results}
		if _, seen := s.named(a.mutant.Clause); seen {
			return &from, nil
		}
	}
	return new(int), nil
}

// lastStep is the last step that a history has anything of; -1 for none.
func lastStep(h *trace.History) int {
	last := -1
	for e := range h.All {
		last = max(last, e.Step)
	}
	return last
}

// graft is what before recorded of the steps until from and ahead of them, and what
// after recorded of the steps from it on and behind them.
func graft(before, after *trace.History, from int) *trace.History {
	out := *before
	out.Ranks = map[int][]trace.Event{}
	for rank := range after.Ranks {
		head, tail := before.Ranks[rank], after.Ranks[rank]
		headBegins, tailBegins := firstStep(head), firstStep(tail)
		var events []trace.Event
		for i := range head {
			if s := head[i].Step; s < from && (s >= 0 || i < headBegins) {
				events = append(events, head[i])
			}
		}
		for i := range tail {
			if s := tail[i].Step; s >= from || s < 0 && i >= tailBegins {
				events = append(events, tail[i])
			}
		}
		out.Ranks[rank] = events
	}
	return &out
}

// firstStep is the place of the first event that is of a step.
func firstStep(events []trace.Event) int {
	i := slices.IndexFunc(events, func(e trace.Event) bool { return e.Step >= 0 })
	if i < 0 {
		return len(events)
	}
	return i
}

// stale says that no fault of a clause that begins after the first step is named,
// where faults of several steps were tried: nothing shows that it looks at later ones.
func stale(cl *contract.Clause, tried []report.Mutant) bool {
	several := false
	for i := range tried {
		switch from := tried[i].Late; {
		case from == nil:
		case *from > 0:
			return false
		default:
			several = true
		}
	}
	return several && cl.Phase != contract.Initial && cl.Phase != contract.Drilled
}
