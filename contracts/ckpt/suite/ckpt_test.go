package suite_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	ckpts "github.com/lockstep-ml/lockstep/contracts/ckpt"
	ckpt "github.com/lockstep-ml/lockstep/contracts/ckpt/suite"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// The cases hold, mutants are caught, and what is taken away from the evidence
// of a case leaves clauses without a verdict.
func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := ckpt.Suite()
	all := c.Cases(contracttest.Options())
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []suite.Case{cs})
		})
	}
	i := slices.IndexFunc(all, func(cs suite.Case) bool { return strings.Contains(cs.Name, "then dp=2,tp=2") })
	e, err := r.Evidence(t, all[i])
	if err != nil {
		t.Fatal(err)
	}
	digest := func(what string, step int) func(trace.Event) bool {
		return func(e trace.Event) bool {
			return e.Kind == trace.KindDigest && e.What == what && e.Step == step && e.Rank == 1
		}
	}
	for _, x := range []struct {
		name    string
		lost    func(trace.Event) bool
		clauses []string
	}{
		{"where it goes on", func(e trace.Event) bool { return e.Kind == trace.KindResume && e.Rank == 2 }, []string{"1", "2", "3", "4"}},
		{"the state as loaded", digest(trace.MomentM, 1), []string{"1"}},
		{"weights after a step", digest(trace.Weight, 2), []string{"2"}},
		{"scalars", func(e trace.Event) bool { return e.Kind == trace.KindScalar && e.Rank == 3 }, []string{"2", "3"}},
		{"data", func(e trace.Event) bool { return e.Kind == trace.KindData && e.Step == 3 }, []string{"4"}},
	} {
		t.Run("without "+x.name, func(t *testing.T) {
			for _, res := range contracttest.Judge(c.Contract, []contract.Evidence{contracttest.Without(e, contract.Test, x.lost)}) {
				if n := strings.TrimPrefix(res.Clause.ID, "C-CKPT-001."); slices.Contains(x.clauses, n) && res.Verdict() != contract.Inconclusive {
					t.Errorf("%s is %s: saw %d of %d", res.Clause.ID, res.Verdict(), res.Saw, res.Expected)
					contracttest.Log(t, res)
				}
			}
		})
	}
	r.Mutants(t, c)
}

// What is taken away from what the files show leaves clauses 6 to 8 without a
// verdict.
func TestFiles(t *testing.T) {
	var r contracttest.Runner
	c := ckpt.Suite()
	kind := func(k trace.Kind) func(trace.Event) bool { return func(e trace.Event) bool { return e.Kind == k } }
	for _, x := range []struct {
		on, name string
		lost     func(trace.Event) bool
		clauses  []string
	}{
		{"odd dp=4,zero=1 sgd stored", "a tensor of the files", func(e trace.Event) bool {
			return e.Kind == trace.KindStored && e.What == trace.Momentum && e.Tensor == "model.norm.weight"
		}, []string{"6"}},
		{"odd dp=4,zero=1 sgd stored", "a rank's digests", func(e trace.Event) bool {
			return e.Kind == trace.KindDigest && e.Rank == 0 && e.What == trace.Weight
		}, []string{"6", "7"}},
		{"odd dp=4,zero=1 sgd stored", "the counter", func(e trace.Event) bool { return e.What == trace.Counter }, []string{"7"}},
		{"odd dp=4,zero=1 sgd stored", "a file", func(e trace.Event) bool { return e.Unit == "rank-00002.safetensors" }, []string{"7"}},
		{"odd dp=4,zero=1 sgd stored", "all files", kind(trace.KindFile), []string{"7"}},
		{"golden checkpoint", "a file", func(e trace.Event) bool { return e.Unit == "rank-00002.safetensors" }, []string{"8"}},
		{"golden checkpoint", "the resumption", kind(trace.KindRefusal), []string{"8"}},
	} {
		t.Run(x.on+" without "+x.name, func(t *testing.T) {
			on, ok := c.Find(contracttest.Options(), x.on)
			if !ok {
				t.Fatal("no such case")
			}
			e, err := r.Evidence(t, on)
			if err != nil {
				t.Fatal(err)
			}
			less := contracttest.Without(e, contract.Test, x.lost)
			contracttest.Want(t, c, less, contract.Inconclusive, x.clauses...)
		})
	}
}

// Each damage is tried, refused by name, and its loss is no verdict.
func TestDamages(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var r contracttest.Runner
	c := ckpt.Suite()
	all := c.Cases(contracttest.Options())
	e, err := r.Evidence(t, all[len(all)-1])
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ev := range e.Histories[contract.Test].All {
		t.Logf("%s: %s", ev.What, ev.Text)
		n++
		lost := contracttest.Without(e, contract.Test, func(x trace.Event) bool { return x.What == ev.What })
		contracttest.Want(t, c, lost, contract.Inconclusive, "5")
		other := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
			for i := range events {
				if events[i].What == ev.What && ev.What != "" {
					events[i].Text = "something is wrong"
				} else if events[i].What == ev.What {
					events[i].Text = "a checkpoint that is whole"
				}
			}
			return events
		})
		contracttest.Want(t, c, other, contract.Violated, "5")
	}
	if n < 10 {
		t.Errorf("%d attempts", n)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("the run leaves %v behind (%v)", left, err)
	}
}

// Each damage that a reader can see in the files is seen in a stored checkpoint by
// the clauses about those, whoever resumes it; what is no damage is none there.
func TestDamagesAreSeenInFiles(t *testing.T) {
	for _, d := range append([]ckpts.Damage{{}}, ckpts.Damages()...) {
		t.Run(d.Name, func(t *testing.T) {
			h, err := ckpt.Damaged(t.Context(), d.Name)
			if err != nil {
				t.Fatal(err)
			}
			all, err := contract.Judge(t.Context(), ckpts.Contract(), []contract.Evidence{{Case: d.Name, Histories: map[contract.Role]*trace.History{contract.Test: h},
				Clauses: []string{"C-CKPT-001.6", "C-CKPT-001.7"}}})
			if err != nil {
				t.Fatal(err)
			}
			six, seven := all[5], all[6]
			switch {
			case d.Name == ckpts.Otherwise: // a run may go on so, but what was stored is not this
				if six.Verdict() != contract.Held || seven.Verdict() != contract.Violated {
					t.Errorf("clause 6 is %s, clause 7 %s", six.Verdict(), seven.Verdict())
				}
			case d.File == "" && (six.Verdict() != contract.Held || seven.Verdict() != contract.Held):
				t.Errorf("no damage, and clause 6 is %s, 7 %s: %v %v", six.Verdict(), seven.Verdict(), six.Findings, seven.Findings)
			case d.File != "" && six.Verdict() != contract.Violated && seven.Verdict() != contract.Violated:
				t.Errorf("clause 6 is %s, clause 7 %s", six.Verdict(), seven.Verdict())
			}
		})
	}
}

func TestComplete(t *testing.T) {
	if err := contracts.Validate([]*suite.Suite{ckpt.Suite()}); err != nil {
		t.Error(err)
	}
}
