package suite_test

import (
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	det "github.com/lockstep-ml/lockstep/contracts/det/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

func one(t *testing.T, name string) contract.Evidence {
	t.Helper()
	cases := det.Suite().Cases(contracttest.Options())
	i := slices.IndexFunc(cases, func(c suite.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no case %q", name)
	}
	var r contracttest.Runner
	e, err := r.Evidence(t, cases[i])
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestLessEvidenceIsInconclusive(t *testing.T) {
	c := det.Suite()
	weights := func(e trace.Event) bool { return e.Kind == trace.KindDigest && e.What == trace.Weight }
	losses := func(e trace.Event) bool { return e.Kind == trace.KindScalar && e.What == trace.Loss }
	end := func(e trace.Event) bool { return e.Step == 1 }

	again := one(t, "nano dp=4 again")
	both := contracttest.Without(contracttest.Without(again, contract.Test, weights), contract.Again, weights)
	contracttest.Want(t, c, both, contract.Inconclusive, "1", "2")
	short := contracttest.Without(again, contract.Again, end)
	contracttest.Want(t, c, short, contract.Inconclusive, "1")
	contracttest.Want(t, c, contracttest.Without(again, contract.Other, losses), contract.Inconclusive, "2")
	contracttest.Want(t, c, contracttest.WithoutRank(again, contract.Again, 2), contract.Inconclusive, "1")
	contracttest.Want(t, c, contracttest.WithoutRole(again, contract.Other), contract.Inconclusive, "2")
	// The test run twice is not another seed.
	same := contracttest.WithoutRole(again, contract.Other)
	same.Histories[contract.Other] = again.Histories[contract.Test]
	contracttest.Want(t, c, same, contract.Inconclusive, "2")

	plans := one(t, "odd on plans")
	contracttest.Want(t, c, contracttest.Without(plans, "dp=4", losses), contract.Inconclusive, "4")
	contracttest.Want(t, c, contracttest.WithoutRank(plans, "dp=2", 0), contract.Inconclusive, "4")
	plans.Histories = map[contract.Role]*trace.History{contract.Test: plans.Histories[contract.Test]}
	contracttest.Want(t, c, plans, contract.Inconclusive, "4")
}

// TestGoldensAreOfOneTask: runs that a golden does not describe are not compared
// with it.
func TestGoldensAreOfOneTask(t *testing.T) {
	c := det.Suite()
	e := one(t, "golden nano-adamw-untied")
	contracttest.Want(t, c, e, contract.Held, "3")
	header := func(change func(h *trace.Header)) contract.Evidence {
		x := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event { return events })
		change(&x.Histories[contract.Test].Header)
		return x
	}
	respec := func(change func(c *spec.Config)) contract.Evidence {
		return header(func(h *trace.Header) {
			cfg, err := spec.Of(h.Spec)
			if err != nil {
				t.Fatal(err)
			}
			change(&cfg)
			h.Spec = cfg.Recorded()
		})
	}
	for name, x := range map[string]contract.Evidence{
		"another arithmetic":  header(func(h *trace.Header) { h.Arithmetic++ }),
		"another text":        respec(func(c *spec.Config) { c.TextHash = "0" }),
		"another seed":        respec(func(c *spec.Config) { c.Seed++ }),
		"another clip":        respec(func(c *spec.Config) { c.Optimizer.Clip *= 2 }),
		"more steps than ran": respec(func(c *spec.Config) { c.Steps++ }),
		"no losses":           contracttest.Without(e, contract.Test, func(e trace.Event) bool { return e.What == trace.Loss }),
	} {
		t.Run(name, func(t *testing.T) { contracttest.Want(t, c, x, contract.Inconclusive, "3") })
	}
	none := e
	none.Case = "golden of nothing"
	contracttest.Want(t, c, none, contract.Inconclusive, "3")
	unclipped := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
		for i := range events {
			if events[i].What == trace.Coef {
				events[i].Value = 1
			}
		}
		return events
	})
	contracttest.Want(t, c, unclipped, contract.Violated, "3")
}

// TestSchedulesAreOfOneRun: a run that takes another schedule, or fewer steps
// than were recorded, is not compared.
func TestSchedulesAreOfOneRun(t *testing.T) {
	c := det.Suite()
	e := one(t, "schedule warmup-cosine")
	contracttest.Want(t, c, e, contract.Held, "5")
	contracttest.Want(t, c, contracttest.WithoutRank(e, contract.Test, 1), contract.Inconclusive, "5")
	contracttest.Want(t, c, contracttest.Without(e, contract.Test, func(e trace.Event) bool { return e.What == trace.LR && e.Step == 9 }), contract.Inconclusive, "5")
	for name, change := range map[string]func(*spec.Config){
		"another horizon": func(c *spec.Config) { c.Optimizer.Horizon++ },
		"fewer steps":     func(c *spec.Config) { c.Steps-- },
	} {
		x := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event { return events })
		h := &x.Histories[contract.Test].Header
		cfg, err := spec.Of(h.Spec)
		if err != nil {
			t.Fatal(err)
		}
		change(&cfg)
		h.Spec = cfg.Recorded()
		t.Run(name, func(t *testing.T) { contracttest.Want(t, c, x, contract.Inconclusive, "5") })
	}
	for _, name := range []string{"schedule none", "nano dp=2"} {
		other := e
		other.Case = name
		contracttest.Want(t, c, other, contract.Inconclusive, "5")
	}
}
