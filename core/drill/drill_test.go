package drill_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
)

const seed = 7

func plan(size, level int) (all []drill.Record) {
	for r := range size {
		all = append(all, drill.Plan(size, r, seed, level)...)
	}
	return all
}

func TestPlanHasEveryOperation(t *testing.T) {
	type variant struct {
		op, reduction  string
		input          drill.Input
		bounds, in     bool
		whole          bool // group is the world
		empty, uneven  bool
		peerIsNotFirst bool
	}
	seen := map[variant]bool{}
	for _, r := range plan(3, 0) {
		seen[variant{op: r.Op}] = true
		seen[variant{op: r.Op, whole: len(r.Group) == 3}] = true
		seen[variant{op: r.Op, empty: r.Count == 0, uneven: r.Count%len(r.Group) != 0}] = true
		seen[variant{op: r.Op, reduction: r.Reduction, input: r.Input, bounds: r.Bounds != nil, in: r.InPlace}] = true
		seen[variant{op: r.Op, peerIsNotFirst: r.Peer > r.Group[0]}] = true
	}
	var want []variant
	for _, op := range []string{
		names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast, names.OpSend, names.OpRecv,
		names.OpAllReduceInt, names.OpAllGatherBytes, names.OpBarrier,
	} {
		want = append(want, variant{op: op}, variant{op: op, whole: true}, variant{op: op, empty: true})
		if op != names.OpBarrier {
			want = append(want, variant{op: op, uneven: true})
		}
	}
	for _, in := range []drill.Input{drill.Integer, drill.Order} {
		for _, op := range []string{"sum", "max"} {
			want = append(want, variant{op: names.OpAllReduce, reduction: op, input: in, in: true})
			for i := range 4 {
				want = append(want, variant{op: names.OpReduceScatter, reduction: op, input: in, bounds: i%2 == 1, in: i/2 == 1})
			}
		}
	}
	want = append(want, variant{op: names.OpSplit}, variant{op: names.OpBroadcast, peerIsNotFirst: true})
	for _, v := range want {
		if !seen[v] {
			t.Errorf("the plan lacks %+v", v)
		}
	}
}

// Of the lowest level too, every operation has a vector of several chunks somewhere,
// in every variant of its parts, and groups of more ranks than a tree of five levels
// has are summed in every reduction.
func TestPlanGoesFar(t *testing.T) {
	type variant struct {
		op         string
		bounds, in bool
	}
	long, vast := map[variant]bool{}, map[string]bool{}
	for _, r := range plan(3, 0) {
		if r.Count > 2*8192 {
			long[variant{r.Op, r.Bounds != nil, r.InPlace}] = true
		}
	}
	for _, r := range plan(33, 0) {
		if len(r.Group) >= 32 && r.Count > 0 {
			vast[fmt.Sprint(r.Op, len(r.Group), r.Reduction, r.Input)] = true
		}
	}
	for _, op := range []string{names.OpReduceScatter, names.OpAllGather} {
		for i := range 4 {
			if v := (variant{op, i%2 == 1, i/2 == 1}); !long[v] {
				t.Errorf("no long vector in %+v", v)
			}
		}
	}
	for _, op := range []string{names.OpAllReduce, names.OpBroadcast, names.OpSend, names.OpRecv, names.OpAllReduceInt, names.OpAllGatherBytes} {
		if !long[variant{op, false, op != names.OpAllReduceInt && op != names.OpAllGatherBytes}] {
			t.Errorf("no long vector in %s", op)
		}
	}
	for _, size := range []int{32, 33} {
		for _, op := range []string{names.OpAllReduce, names.OpReduceScatter} {
			for _, in := range []drill.Input{drill.Integer, drill.Order} {
				for _, reduction := range []string{"sum", "max"} {
					if !vast[fmt.Sprint(op, size, reduction, in)] {
						t.Errorf("no %s of %d ranks, %s of %s inputs", op, size, reduction, in)
					}
				}
			}
		}
		for _, op := range []string{names.OpAllGather, names.OpBroadcast, names.OpAllReduceInt, names.OpAllGatherBytes, names.OpSend} {
			if !vast[fmt.Sprint(op, size, "sum", drill.Integer)] {
				t.Errorf("no %s of %d ranks", op, size)
			}
		}
	}
}

// Every field that Expect reads changes the digest it gives, for some record.
func TestExpectReadsTheRecord(t *testing.T) {
	records := plan(3, 0)
	for name, change := range map[string]func(*drill.Record){
		"seed":  func(r *drill.Record) { r.Seed++ },
		"count": func(r *drill.Record) { r.Count++; r.Bounds = nil },
		"input": func(r *drill.Record) {
			r.Input = map[drill.Input]drill.Input{drill.Integer: drill.Order, drill.Order: drill.Integer}[r.Input]
		},
		"reduction": func(r *drill.Record) { r.Reduction = map[string]string{"sum": "max", "max": "sum"}[r.Reduction] },
		"bounds":    func(r *drill.Record) { r.Bounds = nil },
		"in place":  func(r *drill.Record) { r.InPlace = !r.InPlace },
		"peer":      func(r *drill.Record) { r.Peer = r.Group[len(r.Group)-1] },
		"group":     func(r *drill.Record) { r.Group = append([]int{9}, r.Group...); r.Bounds = nil },
	} {
		changed := false
		for _, r := range records {
			was := drill.Expect(r)
			if change(&r); drill.Expect(r) != was {
				changed = true
				break
			}
		}
		if !changed {
			t.Errorf("changing the %s of any record changes no digest", name)
		}
	}
}

// Sums and maxima over a group are told from the elements of its ranks.
func TestExpectOfIntegers(t *testing.T) {
	r := drill.Record{Op: names.OpAllReduceInt, Group: []int{0}, Peer: -1, Reduction: "sum", Input: drill.Integer, Count: 1, Seed: 3}
	one := r
	one.Group = []int{0, 1}
	other := r
	other.Rank, other.Group = 1, []int{1}
	if drill.Expect(r) == drill.Expect(other) || drill.Expect(one) == drill.Expect(r) {
		t.Error("the sum over two ranks, and those of each, have equal digests")
	}
	most := one
	most.Reduction = "max"
	if got := drill.Expect(most); got != drill.Expect(r) && got != drill.Expect(other) {
		t.Error("the maximum over two ranks is neither rank's element")
	}
}

func TestVerifyRefuses(t *testing.T) {
	good := drill.Record{Op: names.OpBroadcast, Rank: 1, Group: []int{0, 1}, Reduction: "sum", Input: drill.Integer, Count: 3, InPlace: true}
	good.Digest = drill.Expect(good)
	if err := drill.Verify(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*drill.Record){
		"digest":       func(r *drill.Record) { r.Digest.A++ },
		"error":        func(r *drill.Record) { r.Err = "lost" },
		"operation":    func(r *drill.Record) { r.Op = "all-to-all" },
		"rank outside": func(r *drill.Record) { r.Rank = 2 },
		"peer outside": func(r *drill.Record) { r.Peer = -1 },
		"no group":     func(r *drill.Record) { r.Group = nil },
		"count":        func(r *drill.Record) { r.Count = -1 },
		"long":         func(r *drill.Record) { r.Count = 1 << 40 },
		"input":        func(r *drill.Record) { r.Input = "" },
		"reduction":    func(r *drill.Record) { r.Reduction = "min" },
		"bounds":       func(r *drill.Record) { r.Op, r.Bounds = names.OpAllGather, []int{0, 4, 3} },
	} {
		r := good
		change(&r)
		if err := drill.Verify(r); err == nil {
			t.Errorf("%s: a record that cannot be right passes", name)
		}
		if name != "digest" && name != "error" {
			r.Digest = drill.Expect(r)
			if drill.Verify(r) == nil {
				t.Errorf("%s: the digest of an impossible record passes", name)
			}
		}
	}
}
