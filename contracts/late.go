package contracts

import (
	"context"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// A fault that is there from the first step on is named there, and hides that a
// clause no longer looks at the steps that follow. So each is judged once more as if
// it had begun in the last one, or else in the second: as histories are data, the
// unbroken runs up to there and the broken ones from there on do.

// late is the last step, of these two, in which a fault may begin and the clause that
// must name it does, there or later; 0 for none, nil where the case has no second step,
// or the fault ends its run before.
func (b *beside) late(ctx context.Context, a *attempt) (*int, error) {
	clean, broken := a.clean.History(contract.Test), a.broken.History(contract.Test)
	if a.own == nil || clean == nil || broken == nil {
		return nil, nil
	}
	first, last := span(clean)
	if _, ended := span(broken); last <= first || ended < last {
		return nil, nil
	}
	for _, from := range slices.Compact([]int{last, first + 1}) {
		results, err := judge(ctx, a.own.Contract, []contract.Evidence{b.from(a, from)})
		if err != nil {
			return nil, err
		}
		s := sight{results: results}
		if r, seen := s.named(a.mutant.Clause); seen && r.Findings[0].Step >= from {
			return &from, nil
		}
	}
	return new(int), nil
}

// from is the evidence of a fault's clause, of runs that are broken from a step on.
func (b *beside) from(a *attempt, step int) contract.Evidence {
	e := a.broken.Evidence(b.o.Oracle)
	for role, h := range e.Histories {
		if clean := a.clean.History(role); clean != nil && clean != h {
			e.Histories[role] = graft(clean, h, step)
		}
	}
	e.Clauses = []string{a.mutant.Clause}
	return e
}

// span are the first and the last step that a history has scalars of, or, where it has
// none, anything.
func span(h *trace.History) (first, last int) {
	for _, scalars := range []bool{true, false} {
		first, last = math.MaxInt, -1
		for e := range h.All {
			if e.Step >= 0 && (e.Kind == trace.KindScalar || !scalars) {
				first, last = min(first, e.Step), max(last, e.Step)
			}
		}
		if last >= 0 {
			break
		}
	}
	return first, last
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
