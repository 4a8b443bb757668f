package evidence_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// judge is what a check makes of histories.
func judge(check func(*contract.Pass), histories map[contract.Role]*trace.History) contract.Result {
	c := &contract.Contract{Clauses: []*contract.Clause{{ID: "1", Check: check}}}
	r, err := contract.Judge(context.Background(), c, []contract.Evidence{{Case: "case", Histories: histories}})
	if err != nil {
		panic(err)
	}
	return r[0]
}

// whole is the history of a single worker, of whom no rank is missing.
func whole(t *testing.T) *trace.History {
	h := spread(t, "dp=1").History
	h.Ranks[0] = []trace.Event{{Kind: trace.KindSkip}, {Kind: trace.KindEnd}}
	return h
}

// A check is given its runs or not called at all; then there is a doubt.
func TestWith(t *testing.T) {
	called := 0
	one := evidence.With(func(p *contract.Pass, r *evidence.Run) { called++; p.Found(r != nil) })
	two := evidence.WithBoth(contract.Again, func(p *contract.Pass, r, other *evidence.Run) { called++; p.Found(r != other) })
	unread := whole(t)
	unread.Header.Spec = trace.Spec{Lockstep: []byte(`{}`)}
	for name, x := range map[string]struct {
		check     func(*contract.Pass)
		histories map[contract.Role]*trace.History
		called    int
		verdict   contract.Verdict
	}{
		"no run":          {one, nil, 0, contract.Inconclusive},
		"another's run":   {one, map[contract.Role]*trace.History{contract.Again: whole(t)}, 0, contract.Inconclusive},
		"no training run": {one, map[contract.Role]*trace.History{contract.Test: unread}, 0, contract.Inconclusive},
		"one run":         {one, map[contract.Role]*trace.History{contract.Test: whole(t)}, 1, contract.Held},
		"one of two":      {two, map[contract.Role]*trace.History{contract.Test: whole(t)}, 0, contract.Inconclusive},
		"the other":       {two, map[contract.Role]*trace.History{contract.Again: whole(t)}, 0, contract.Inconclusive},
		"two runs":        {two, map[contract.Role]*trace.History{contract.Test: whole(t), contract.Again: whole(t)}, 1, contract.Held},
	} {
		called = 0
		r := judge(x.check, x.histories)
		if called != x.called || r.Verdict() != x.verdict || (len(r.Doubts) > 0) != (x.called == 0) {
			t.Errorf("%s: called %d times, %s, doubts %q", name, called, r.Verdict(), r.Doubts)
		}
	}
}

// Digests and scalars are one piece of evidence each, seen only where there is
// one, and NaN is NaN: nothing is printed as got that is also wanted.
func TestCompare(t *testing.T) {
	digest := func(a uint64, lost uint64) trace.Event {
		return trace.Event{Count: 1, Digest: &kernels.Digest{A: a, NonFinite: lost}}
	}
	r := judge(evidence.With(func(p *contract.Pass, r *evidence.Run) {
		at := p.At(0, 1).Of("w")
		r.Compare(at, false, digest(1, 0), digest(2, 0), "not recorded")
		r.Compare(at, true, digest(1, 0), digest(1, 0), "equal")
		r.Compare(at, true, digest(1, 0), digest(2, 0), "rank %d", 0)
		r.Compare(at, true, digest(1, 1), digest(1, 1), "equal, not finite")
		r.Compare(at, true, digest(1, 1), digest(1, 0), "not finite")
		nan := trace.Event{Value: trace.Float(math.NaN())}
		r.CompareScalar(at, true, nan, nan, "equal, NaN")
		r.CompareScalar(at, false, trace.Event{Value: 1}, trace.Event{}, "not recorded")
		r.CompareScalar(at, true, trace.Event{Value: 1, Bits: 2}, trace.Event{Value: 1, Bits: 2}, "equal")
		r.CompareScalar(at, true, trace.Event{Value: 1}, trace.Event{Value: 2}, "value")
		r.CompareScalar(at, true, trace.Event{Bits: 1}, trace.Event{}, "bits")
		evidence.ReportElement(at, 1, []float32{0, 1}, []float32{0, 2}, "element")
	}), map[contract.Role]*trace.History{contract.Test: whole(t)})
	var messages []string
	for _, f := range r.Findings {
		if f.Case != "case" || f.Rank != 0 || f.Step != 1 || f.Tensor != "w" {
			t.Errorf("misplaced: %+v", f)
		}
		messages = append(messages, f.Message)
	}
	if d := cmp.Diff([]string{"rank 0", "not finite", "value", "bits", "element"}, messages); d != "" {
		t.Error(d)
	}
	if f := r.Findings[len(r.Findings)-1]; f.Index != 1 || f.Got != evidence.Bits(0x3f800000) || f.Want != evidence.Bits(0x40000000) {
		t.Errorf("element: %+v", f)
	}
	if r.Expected != 10 || r.Saw != 8 {
		t.Errorf("saw %d of %d, want 8 of 10", r.Saw, r.Expected)
	}
}

// Workers with sequences are the first ones, whatever the batch; without their
// gradients in the evidence none is graded.
func TestWorkingAndGraded(t *testing.T) {
	for sequences := range 10 {
		r := spread(t, "dp=2")
		r.Config.Sequences = sequences
		busy := 0
		for w := range r.Workers {
			if r.Busy(w) != (w < sequences) {
				t.Errorf("%d sequences: worker %d busy is %v", sequences, w, r.Busy(w))
			}
			if r.Busy(w) {
				busy++
			}
		}
		r.Config.Recording.Workers = true
		if r.Working() != busy || r.Graded() != busy {
			t.Errorf("%d sequences: %d working, %d graded, want %d", sequences, r.Working(), r.Graded(), busy)
		}
		r.Config.Recording.Workers = false
		if r.Graded() != 0 {
			t.Errorf("%d sequences: %d graded of none recorded", sequences, r.Graded())
		}
	}
}

// In yields a step's events of one kind, in their order, and stops when told.
func TestIn(t *testing.T) {
	r := spread(t, "dp=1")
	for _, step := range []int{-1, 0, 1, 0, 0} {
		r.Ranks[0] = append(r.Ranks[0], trace.Event{Kind: trace.KindComm, Step: step, Seq: uint64(len(r.Ranks[0]))}, trace.Event{Kind: trace.KindData, Step: step})
	}
	r, err := evidence.New(r.History)
	if err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	for e := range r.In(0, 0, trace.KindComm) {
		if seqs = append(seqs, e.Seq); len(seqs) == 2 {
			break
		}
	}
	if !slices.Equal(seqs, []uint64{2, 6}) {
		t.Errorf("operations %v, want the second and the fourth", seqs)
	}
}

// Named keeps the order and changes nothing.
func TestNamed(t *testing.T) {
	all := []evidence.Tensor{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	got := evidence.Named(all, func(n string) bool { return n != "a" })
	if len(evidence.Named(all, nil)) != 3 || len(got) != 2 || got[0].Name != "b" || all[0].Name != "a" {
		t.Errorf("selected %v of %v", got, all)
	}
}
