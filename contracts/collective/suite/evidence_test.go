package suite_test

import (
	"encoding/json"
	"testing"

	collective "github.com/lockstep-ml/lockstep/contracts/collective/suite"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
	"github.com/lockstep-ml/lockstep/kernels"
)

var all = []string{"1", "2", "3", "4", "5", "6", "7"}

// smallest is the drill of two ranks.
func smallest(t *testing.T) (*suite.Suite, contract.Evidence) {
	t.Helper()
	c := collective.Suite()
	var r contracttest.Runner
	e, err := r.Evidence(t, c.Cases(contracttest.Options())[0])
	if err != nil {
		t.Fatal(err)
	}
	contracttest.Want(t, c, e, contract.Held, all...)
	h := e.Histories[contract.Test]
	last := &trace.Log{Header: h.Header}
	last.Header.Rank = 1
	for _, ev := range h.Ranks[1] {
		last.Record(ev)
	}
	tracetest.Written(t, last)
	return c, e
}

func TestLessEvidenceIsInconclusive(t *testing.T) {
	c, e := smallest(t)
	seen := 0
	for name, x := range map[string]struct {
		drop    func(trace.Event) bool
		clauses []string
	}{
		"all operations":         {func(e trace.Event) bool { return e.Kind == trace.KindDrill }, all},
		"the second time":        {func(e trace.Event) bool { return e.Kind == trace.KindDrill && e.Step == 1 }, all},
		"one operation early on": {func(e trace.Event) bool { seen++; return seen == 3 }, all},
		"sends":                  {func(e trace.Event) bool { return e.Op == names.OpSend }, all},
		"refusals":               {func(e trace.Event) bool { return e.What == "mismatch" }, []string{"7"}},
	} {
		t.Run(name, func(t *testing.T) {
			contracttest.Want(t, c, contracttest.Without(e, contract.Test, x.drop), contract.Inconclusive, x.clauses...)
		})
	}
	contracttest.Want(t, c, contracttest.WithoutRank(e, contract.Test, 1), contract.Inconclusive, all...)
	contracttest.Want(t, c, contracttest.WithoutRole(e, contract.Test), contract.Inconclusive, all...)
}

func TestEditedHistories(t *testing.T) {
	c, e := smallest(t)
	edit := func(match func(trace.Event) bool, change func(*trace.Event)) contract.Evidence {
		return contracttest.Edit(e, contract.Test, func(rank int, events []trace.Event) []trace.Event {
			for i := range events {
				if rank == 1 && match(events[i]) {
					change(&events[i])
				}
			}
			return events
		})
	}
	scatter := func(e trace.Event) bool { return e.Op == names.OpReduceScatter && e.Step == 1 }
	contracttest.Want(t, c, edit(scatter, func(e *trace.Event) { e.Digest = &kernels.Digest{A: 1} }), contract.Violated, "1", "2", "3", "5", "6")
	gather := func(e trace.Event) bool { return e.Op == names.OpAllGatherBytes }
	contracttest.Want(t, c, edit(gather, func(e *trace.Event) { e.Text = "lost" }), contract.Violated, "1", "3")
	refusal := func(e trace.Event) bool { return e.What == "mismatch" }
	contracttest.Want(t, c, edit(refusal, func(e *trace.Event) { e.Text = "" }), contract.Violated, "7")
}

// TestSpecsAreNotTrusted: a header that claims nonsense gives no verdict.
func TestSpecsAreNotTrusted(t *testing.T) {
	c, e := smallest(t)
	for _, spec := range []string{`{`, `{"world":2,"algorithm":"tree","repeats":0}`, `{"world":3,"algorithm":"tree","repeats":1}`,
		`{"world":100000000,"algorithm":"tree","repeats":1}`, `{"world":2,"algorithm":"tree","repeats":1,"level":9}`, `{"world":2,"algorithm":"bus","repeats":1}`} {
		bad := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event { return events })
		bad.Histories[contract.Test].Header.Spec = trace.Spec{Drill: json.RawMessage(spec)}
		contracttest.Want(t, c, bad, contract.Inconclusive, all...)
		bad.Histories[contract.Test].Header.Spec = trace.Spec{Lockstep: e.Histories[contract.Test].Header.Spec.Drill}
		contracttest.Want(t, c, bad, contract.Inconclusive, all...)
	}
}
