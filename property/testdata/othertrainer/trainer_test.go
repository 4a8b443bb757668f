package othertrainer

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// judge judges a run against the single worker's: by all clauses of C-DDP-001
// for which the trainer records evidence. Clause 6 needs more: the elements that
// every step changes, and an oracle that recomputes the update.
func judge(t *testing.T, test, control *trace.History) map[string]contract.Result {
	t.Helper()
	c, err := contracts.Find("C-DDP-001")
	if err != nil {
		t.Fatal(err)
	}
	clauses := []string{"C-DDP-001.1", "C-DDP-001.2", "C-DDP-001.3", "C-DDP-001.4", "C-DDP-001.5", "C-DDP-001.7", "C-DDP-001.8"}
	out := map[string]contract.Result{}
	results, err := contract.Judge(t.Context(), c.Contract, []contract.Evidence{{Case: "means", Clauses: clauses,
		Histories: map[contract.Role]*trace.History{contract.Test: test, contract.Control: control}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		out[r.Clause.ID] = r
	}
	return out
}

func run(t *testing.T, dp int, bug Bug) *trace.History {
	t.Helper()
	h, err := Train(t.Context(), dp, bug)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestTrainer is all that the author of a trainer has to write.
func TestTrainer(t *testing.T) {
	for id, r := range judge(t, run(t, 2, nil), run(t, 1, nil)) {
		if v := r.Verdict(); v != contract.Held && id != "C-DDP-001.6" {
			t.Errorf("%s: %v: saw %d of %d; %v %v", id, v, r.Saw, r.Expected, r.Doubts, r.Findings)
		}
	}
}

// The planted bug lets rank 1 forget a gradient in the second step. All ranks
// then agree, on the wrong weights: only the single worker tells.
func TestTrainerWithABug(t *testing.T) {
	forget := func(rank, step int, gradient []float32) {
		if rank == 1 && step == 1 {
			gradient[3] = 0
		}
	}
	results := judge(t, run(t, 2, forget), run(t, 1, nil))
	if r := results["C-DDP-001.2"]; r.Verdict() != contract.Held {
		t.Errorf("the replicas are %v, want held: %v", r.Verdict(), r.Findings)
	}
	r := results["C-DDP-001.4"]
	if r.Verdict() != contract.Violated || r.Findings[0].Step != 1 {
		t.Fatalf("%v, want violated in step 1: %v", r.Verdict(), r.Findings)
	}
	t.Logf("%+v", r.Findings[0])
}
