package suite_test

import (
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	zero "github.com/lockstep-ml/lockstep/contracts/zero/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
)

// The cases hold, mutants are caught, and what is taken away from the evidence
// of a case leaves clauses without a verdict. Runs are shared.
func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := zero.Suite()
	all := c.Cases(contracttest.Options())
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []suite.Case{cs})
		})
	}
	for _, x := range losses() {
		t.Run("without "+x.name, func(t *testing.T) {
			i := slices.IndexFunc(all, func(cs suite.Case) bool { return cs.Name == x.on })
			e, err := r.Evidence(t, all[i])
			if err != nil {
				t.Fatal(err)
			}
			inconclusive(t, c, contracttest.Without(e, contract.Test, x.lost), x.clauses)
		})
	}
	r.Mutants(t, c)
}

// TestOtherOrders: sharded and unsharded sums that have different orders are held
// against the bound.
func TestOtherOrders(t *testing.T) {
	var r contracttest.Runner
	c := zero.Suite()
	r.OnPlan(t, c, "dp=4,zero=1,comm=ring", "moments-swapped")
	r.OnPlan(t, c, "dp=4,zero=3,comm=star", "owner-does-not-update", "clipped-by-local-norm", "stale-slice-in-stage-3")
	if race.Enabled {
		return
	}
	r.OnPlan(t, c, "dp=4,zero=2,comm=ring", "reduced-gradient-reduced-again")
	r.OnPlan(t, c, "dp=8,zero=1,shard=round-robin,comm=ring", "idle-rank-does-not-count")
	r.OnPlan(t, c, "dp=3,tp=2,zero=1,shard=balanced,comm=ring")
	r.OnPlan(t, c, "dp=4,zero=1,comm=star", "moments-swapped") // in the order of the unsharded run
}

// inconclusive fails where one of the clauses has a verdict.
func inconclusive(t *testing.T, c *suite.Suite, e contract.Evidence, clauses []string) {
	t.Helper()
	for _, res := range contracttest.Judge(c.Contract, []contract.Evidence{e}) {
		if slices.Contains(clauses, res.Clause.ID[len("C-ZERO-001."):]) && res.Verdict() != contract.Inconclusive {
			t.Errorf("%s is %s: saw %d of %d", res.Clause.ID, res.Verdict(), res.Saw, res.Expected)
			contracttest.Log(t, res)
		}
	}
}

// loss is evidence that a run fails to give, and the clauses that need it.
type loss struct {
	name, on string
	lost     func(trace.Event) bool
	clauses  []string
}

func losses() []loss {
	kind := func(k trace.Kind) func(trace.Event) bool { return func(e trace.Event) bool { return e.Kind == k } }
	digest := func(what string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindDigest && e.What == what }
	}
	const two, three, blocks = "odd dp=4,zero=2", "odd dp=4,zero=3", "odd dp=4,zero=1,shard=balanced"
	return []loss{
		{"digests", three, kind(trace.KindDigest), []string{"1", "2", "3"}},
		{"weights at rest", three, digest(trace.Weight), []string{"1", "2", "3"}},
		{"weights", two, digest(trace.Weight), []string{"2", "3", "4"}},
		{"what owners made", two, digest(trace.Updated), []string{"3"}},
		{"one rank's moments", two, func(e trace.Event) bool { return e.What == trace.MomentV && e.Rank == 2 }, []string{"1"}},
		{"workers' gradients", two, digest(trace.WorkerGrad), []string{"2"}},
		{"scalars", two, kind(trace.KindScalar), []string{"2", "6"}},
		{"gathers", three, kind(trace.KindGather), []string{"3"}},
		{"passes", three, kind(trace.KindPhase), []string{"4"}},
		{"memory", three, kind(trace.KindMemory), []string{"4", "5"}},
		{"memory of a map", blocks, kind(trace.KindMemory), []string{"5", "7"}},
		{"moments of a map", blocks, digest(trace.MomentM), []string{"1", "2", "7"}},
		{"one rank's operations", two, func(e trace.Event) bool { return e.Kind == trace.KindComm && e.Rank == 1 }, []string{"6"}},
		{"the last step", two, func(e trace.Event) bool { return e.Step == 1 }, []string{"1", "2", "3", "4", "5", "6"}},
	}
}

// A rank whose file is lost leaves no clause with a verdict of its own making.
func TestLostRank(t *testing.T) {
	var r contracttest.Runner
	c := zero.Suite()
	for _, cs := range c.Cases(contracttest.Options()) {
		if cs.Name != "odd dp=3,zero=3" {
			continue
		}
		e, err := r.Evidence(t, cs)
		if err != nil {
			t.Fatal(err)
		}
		inconclusive(t, c, contracttest.WithoutRank(e, contract.Test, 1), []string{"1", "2", "3", "4", "5", "6", "7"})
		return
	}
	t.Fatal("the case is gone")
}

// Clause 6 believes the communicator's count, not the formula of its operations
// alone.
func TestCountOfWhatMoves(t *testing.T) {
	var r contracttest.Runner
	c := zero.Suite()
	all := c.Cases(contracttest.Options())
	i := slices.IndexFunc(all, func(cs suite.Case) bool { return cs.Name == "odd dp=4,zero=2" })
	e, err := r.Evidence(t, all[i])
	if err != nil {
		t.Fatal(err)
	}
	counted := func(change func(int64) int64) contract.Evidence {
		return contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
			for i := range events {
				events[i].Moved = change(events[i].Moved)
			}
			return events
		})
	}
	contracttest.Want(t, c, counted(func(n int64) int64 { return n }), contract.Held, "6")
	contracttest.Want(t, c, counted(func(int64) int64 { return 0 }), contract.Inconclusive, "6")
	contracttest.Want(t, c, counted(func(int64) int64 { return names.NotCounted }), contract.Inconclusive, "6")
	contracttest.Want(t, c, contracttest.Edit(e, contract.Test, func(rank int, events []trace.Event) []trace.Event {
		i := slices.IndexFunc(events, func(e trace.Event) bool { return e.Kind == trace.KindComm && e.Group == names.DP && e.Step >= 0 })
		if rank == 2 {
			events[i].Moved = names.NotCounted
		}
		return events
	}), contract.Inconclusive, "6")
	contracttest.Want(t, c, counted(func(n int64) int64 { return n + n/8 }), contract.Violated, "6")
	contracttest.Want(t, c, counted(func(n int64) int64 { return n - n/8 }), contract.Violated, "6")
}

// A plan that shards nothing is no evidence.
func TestUnsharded(t *testing.T) {
	var r contracttest.Runner
	c := zero.Suite()
	o := contracttest.Options()
	o.Plans, o.Config = []string{"dp=2"}, "nano"
	e, err := r.Evidence(t, c.Cases(o)[0])
	if err != nil {
		t.Fatal(err)
	}
	inconclusive(t, c, e, []string{"1", "2", "3", "4", "5", "6", "7"})
}

func TestComplete(t *testing.T) {
	if err := contracts.Validate([]*suite.Suite{zero.Suite()}); err != nil {
		t.Error(err)
	}
}

// Clause 5 sees what a rank keeps outside the state that the stages shard.
func TestNothingIsKeptBeside(t *testing.T) {
	var r contracttest.Runner
	c := zero.Suite()
	all := c.Cases(contracttest.Options())
	i := slices.IndexFunc(all, func(cs suite.Case) bool { return cs.Name == "odd dp=4,zero=3" })
	e, err := r.Evidence(t, all[i])
	if err != nil {
		t.Fatal(err)
	}
	kept := contracttest.Edit(e, contract.Test, func(rank int, events []trace.Event) []trace.Event {
		for i := range events {
			if e := &events[i]; rank == 2 && e.Kind == trace.KindMemory && e.What == "other" && e.Step == 1 {
				e.Count += 4
			}
		}
		return events
	})
	for _, res := range contracttest.Judge(c.Contract, []contract.Evidence{kept}) {
		if got, want := res.Verdict(), res.Clause.ID == "C-ZERO-001.5"; (got == contract.Violated) != want {
			t.Errorf("with one element kept on rank 2, %s is %s", res.Clause.ID, got)
		}
	}
}
