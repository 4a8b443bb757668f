package contracttest

import (
	"context"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Edit copies evidence, with one role's history changed rank by rank. The
// events that change gets are its own.
func Edit(e contract.Evidence, role contract.Role, change func(rank int, events []trace.Event) []trace.Event) contract.Evidence {
	h := e.Histories[role]
	out := &trace.History{Header: h.Header, Ranks: map[int][]trace.Event{}, Origins: h.Origins}
	for rank, events := range h.Ranks {
		out.Ranks[rank] = change(rank, append([]trace.Event(nil), events...))
	}
	return with(e, role, out)
}

// Tamper copies evidence, with the first event of a rank of the test run that
// which selects changed.
func Tamper(e contract.Evidence, on int, which func(trace.Event) bool, change func(*trace.Event)) contract.Evidence {
	return Edit(e, contract.Test, func(rank int, events []trace.Event) []trace.Event {
		if rank == on {
			if i := slices.IndexFunc(events, which); i >= 0 {
				change(&events[i])
			}
		}
		return events
	})
}

// Flip changes an event's digest.
func Flip(e *trace.Event) {
	d := *e.Digest
	d.A ^= 1
	e.Digest = &d
}

// Without copies evidence, leaving out the events of one role that drop selects.
func Without(e contract.Evidence, role contract.Role, drop func(trace.Event) bool) contract.Evidence {
	return Edit(e, role, func(_ int, events []trace.Event) []trace.Event {
		var kept []trace.Event
		for _, ev := range events {
			if !drop(ev) {
				kept = append(kept, ev)
			}
		}
		return kept
	})
}

// WithoutRank copies evidence, leaving out one rank's history of a role.
func WithoutRank(e contract.Evidence, role contract.Role, rank int) contract.Evidence {
	less := Edit(e, role, func(_ int, events []trace.Event) []trace.Event { return events })
	delete(less.Histories[role].Ranks, rank)
	return less
}

// WithoutRole copies evidence, leaving out a role's history.
func WithoutRole(e contract.Evidence, role contract.Role) contract.Evidence {
	return with(e, role, nil)
}

// with replaces one role's history in a copy; nil removes it.
func with(e contract.Evidence, role contract.Role, h *trace.History) contract.Evidence {
	histories := map[contract.Role]*trace.History{}
	for k, v := range e.Histories {
		if k != role {
			histories[k] = v
		}
	}
	if h != nil {
		histories[role] = h
	}
	e.Histories = histories
	return e
}

// Judge is contract.Judge where nothing ends it.
func Judge(c *contract.Contract, all []contract.Evidence) []contract.Result {
	out, _ := contract.Judge(context.Background(), c, all) // fails where its context ends
	return out
}

// Verdicts judges one piece of evidence: verdict by clause number.
func Verdicts(c *suite.Suite, e contract.Evidence) map[string]contract.Result {
	out := map[string]contract.Result{}
	for _, res := range Judge(c.Contract, []contract.Evidence{e}) {
		out[res.Clause.ID[len(c.ID)+1:]] = res
	}
	return out
}

// Want fails unless the clauses, given by number, have the verdict.
func Want(t testing.TB, c *suite.Suite, e contract.Evidence, want contract.Verdict, clauses ...string) {
	t.Helper()
	all := Verdicts(c, e)
	for _, n := range clauses {
		res, ok := all[n]
		if !ok {
			t.Errorf("%s has no clause %s", c.ID, n)
			continue
		}
		if v := res.Verdict(); v != want {
			t.Errorf("%s is %s, want %s: saw %d of %d, doubts %q", res.Clause.ID, v, want, res.Saw, res.Expected, res.Doubts)
			Log(t, res)
		}
	}
}
