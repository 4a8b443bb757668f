package evidence_test

import (
	"math"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// copies are digests by rank: equal letters are equal bits, 'n' is not finite.
func copies(letters string) map[int]trace.Event {
	out := map[int]trace.Event{}
	for rank, c := range letters {
		d := kernels.Digest{A: uint64(c)}
		if c == 'n' {
			d.NonFinite = 1
		}
		out[rank] = trace.Event{Kind: trace.KindDigest, Count: 1, Digest: &d}
	}
	return out
}

func TestDissent(t *testing.T) {
	for _, x := range []struct {
		letters string
		ref     int
		out     []int
	}{
		{"", 0, nil},
		{"a", 0, nil},
		{"aaaa", 0, nil},
		{"aab", 0, []int{2}},
		{"baa", 1, []int{0}},        // the majority is right, not the lowest rank
		{"ab", 0, []int{1}},         // of equal parties the lowest rank's
		{"baab", 0, []int{1, 2}},    //
		{"abcd", 0, []int{1, 2, 3}}, // no two agree
		{"nn", 0, nil},              // every NaN has the bits of every other
		{"nan", 0, []int{1}},
	} {
		ref, out := evidence.Dissent(copies(x.letters))
		if ref != x.ref || !slices.Equal(out, x.out) {
			t.Errorf("%q: reference %d, dissenting %v: want %d, %v", x.letters, ref, out, x.ref, x.out)
		}
	}
}

func TestSame(t *testing.T) {
	a := trace.Event{Count: 2, Digest: &kernels.Digest{A: 1, B: 2}}
	shorter, other, none, nan := a, a, a, a
	shorter.Count = 1
	other.Digest = &kernels.Digest{A: 1, B: 3}
	none.Digest = nil
	nan.Digest = &kernels.Digest{A: 1, B: 2, NonFinite: 1}
	for name, b := range map[string]trace.Event{"fewer elements": shorter, "another half": other, "no digest": none, "not finite": nan} {
		if evidence.Same(a, b) || evidence.Same(b, b) != (name != "no digest") {
			t.Errorf("%s: is taken for the same", name)
		}
	}
	if !evidence.Same(a, a) {
		t.Error("equal digests are not the same")
	}
}

// TestFill: elements tell more than the descent of the ranks, that more than
// digests; all NaN are one value.
func TestFill(t *testing.T) {
	diff := trace.Event{Kind: trace.KindDiff, Rank: 1, Step: 2, What: trace.Weight, Tensor: "w", Index: 7, Got: 0x3f800000, Want: 0x40000000}
	r := &evidence.Run{History: &trace.History{Header: trace.Header{World: 2}, Ranks: map[int][]trace.Event{1: {diff}}}}
	f := contract.Finding{Rank: 1, Step: 2, Tensor: "w"}
	nan := float32(math.NaN())
	got := trace.Event{What: trace.Weight, Count: 3, Digest: &kernels.Digest{A: 1}, Data: trace.Floats{nan, 1, 5}}
	want := trace.Event{What: trace.Weight, Count: 3, Digest: &kernels.Digest{A: 2}, Data: trace.Floats{nan, 1, 6}}

	if x := r.Fill(f, got, want); x.Index != 2 || x.Got != "0x40a00000 (5)" || x.Want != "0x40c00000 (6)" {
		t.Errorf("from elements: %+v", x)
	}
	got.Data, want.Data = nil, nil
	if x := r.Fill(f, got, want); x.Index != 7 || x.Got != "0x3f800000 (1)" || x.Want != "0x40000000 (2)" {
		t.Errorf("from the descent: %+v", x)
	}
	f.Step = 3
	if x := r.Fill(f, got, want); x.Index != -1 || x.Got != "digest 00000000000000010000000000000000 of 3 elements" {
		t.Errorf("from digests: %+v", x)
	}
}
