package contract

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompare: one piece of evidence each, seen only where there is one, and a
// finding, at its place, only where the two differ.
func TestCompare(t *testing.T) {
	p := &Pass{Case: "a"}
	Compare(p.At(1, 2), false, 3, 4, "not recorded")
	Compare(p.At(1, 2), true, 4, 4, "equal")
	Compare(p.At(1, 2).Of("w"), true, 3, 4, "rank %d", 1)
	p.At(-1, 0).Report(nil, "finite", "nobody")
	p.result.Findings = p.findings()
	want := Result{Saw: 2, Expected: 3, Total: 2, Findings: []Finding{
		{Case: "a", Rank: -1, Index: -1, Want: "finite", Message: "nobody"},
		{Case: "a", Rank: 1, Step: 2, Tensor: "w", Index: -1, Got: "3", Want: "4", Message: "rank 1"},
	}}
	if d := cmp.Diff(want, p.result); d != "" {
		t.Error(d)
	}
}

// TestCount: a surplus of one thing does not make up for the lack of another.
func TestCount(t *testing.T) {
	p := &Pass{}
	p.Count(2, 5)
	p.Count(2, 1)
	if p.result.Expected != 4 || p.result.Saw != 3 {
		t.Errorf("saw %d of %d, want 3 of 4", p.result.Saw, p.result.Expected)
	}
}
