package evidence_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// plans cut tensors by rows, columns, layers and elements.
var plans = []string{"dp=1", "dp=2", "tp=2", "tp=4,vocab=parallel", "dp=2,tp=2,pp=2", "pp=2,schedule=interleaved,virtual=2", "dp=3,zero=2", "dp=2,tp=4,zero=3"}

// capture records the elements of a tensor as its holders see them, element i
// having the value i: whole slices, or the data-parallel ranks' shares.
func capture(r *evidence.Run, held []evidence.Holding, shares bool) {
	for _, h := range held {
		own := shard.Range{Hi: h.Param.Len()}
		if dp := r.Config.Plan.DP; shares && dp > 1 {
			own = shard.Part{Index: h.At.DP, Size: dp}.Of(h.Param.Len())
		}
		ev := trace.Event{Kind: trace.KindDigest, Rank: h.Rank, What: trace.Weight, Tensor: h.Param.Name, Digest: &kernels.Digest{},
			Lo: int64(h.Param.Off + own.Lo), Hi: int64(h.Param.Off + own.Hi), Count: int64(own.Len())}
		for i := range own.Len() {
			ev.Data = append(ev.Data, float32(h.Index(int64(own.Lo+i))))
		}
		r.Ranks[h.Rank] = append(r.Ranks[h.Rank], ev)
	}
}

// reread indexes what was recorded in the meantime.
func reread(t *testing.T, r *evidence.Run) *evidence.Run {
	t.Helper()
	out, err := evidence.New(r.History)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A tensor is put together from slices and shares of any plan, and not where a
// rank is missing that alone has some of it.
func TestElements(t *testing.T) {
	for _, p := range plans {
		r := spread(t, p)
		held := r.Held()
		for _, param := range r.Params {
			capture(r, held[param.Name], r.Config.Plan.Zero > 0)
		}
		r = reread(t, r)
		for _, param := range r.Params {
			x, ok := r.Elements(held[param.Name], 0, trace.Weight)
			if i := slices.IndexFunc(x, func(v float32) bool { return v < 0 }); !ok || int64(len(x)) != param.Len || i >= 0 {
				t.Fatalf("%s: %s has %d elements of %d, %v", p, param.Name, len(x), param.Len, ok)
			}
			for i, v := range x {
				if v != float32(i) {
					t.Fatalf("%s: element %d of %s is element %v", p, i, param.Name, v)
				}
			}
			first := held[param.Name][0]
			copied := slices.ContainsFunc(held[param.Name][1:], func(h evidence.Holding) bool {
				return h.Param.R == first.Param.R && h.Param.C == first.Param.C && (r.Config.Plan.Zero == 0 || h.At.DP == first.At.DP)
			})
			if _, ok := r.Elements(held[param.Name][1:], 0, trace.Weight); ok != copied {
				t.Errorf("%s: %s without rank %d: %v, want %v", p, param.Name, first.Rank, ok, copied)
			}
			if _, ok := r.Elements(nil, 0, trace.Weight); ok {
				t.Errorf("%s: %s of nobody", p, param.Name)
			}
		}
	}
}

// Elements that do not fit their slice are no evidence.
func TestElementsThatDoNotFit(t *testing.T) {
	for _, change := range []func(*trace.Event){
		func(e *trace.Event) { e.Data = e.Data[1:] },
		func(e *trace.Event) { e.Lo-- },
		func(e *trace.Event) { e.Hi++ },
		func(e *trace.Event) { e.Lo, e.Hi = e.Lo-1, e.Hi-1 },
	} {
		r := spread(t, "dp=1")
		held := r.Held()["model.norm.weight"]
		capture(r, held, false)
		change(&r.Ranks[0][0])
		if _, ok := reread(t, r).Elements(held, 0, trace.Weight); ok {
			t.Errorf("elements [%d,%d) of a slice at %d", r.Ranks[0][0].Lo, r.Ranks[0][0].Hi, held[0].Param.Off)
		}
	}
}

// The slices of ranges cover them, each in its own numbering.
func TestSlicesOfRanges(t *testing.T) {
	for _, p := range plans {
		r := spread(t, p)
		for name, held := range r.Held() {
			n := int64(held[0].Param.Rows * held[0].Param.Cols)
			whole := [][2]int64{{0, 1}, {n / 3, n/3 + 5}, {n - 2, n}}
			var back [][2]int64
			for _, h := range held {
				for _, x := range h.Slice(whole) {
					for i := x[0]; i < x[1]; i++ {
						at := h.Index(i)
						if !h.Has(at) {
							t.Fatalf("%s: %s on rank %d: has no element %d", p, name, h.Rank, at)
						}
						back = append(back, [2]int64{at, at + 1})
					}
				}
			}
			if d := cmp.Diff(evidence.Union(whole), evidence.Union(back)); d != "" {
				t.Errorf("%s: %s: %s", p, name, d)
			}
		}
	}
}

func TestUnion(t *testing.T) {
	for _, x := range []struct{ in, want [][2]int64 }{
		{nil, nil},
		{[][2]int64{{3, 3}}, nil},
		{[][2]int64{{4, 6}, {0, 2}, {2, 3}}, [][2]int64{{0, 3}, {4, 6}}},
		{[][2]int64{{0, 9}, {1, 2}, {8, 10}}, [][2]int64{{0, 10}}},
	} {
		if d := cmp.Diff(x.want, evidence.Union(x.in)); d != "" {
			t.Errorf("%v: %s", x.in, d)
		}
	}
}

// Changes of shares are joined, and left out where one share is missing.
func TestChangesJoinShares(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj.weight"
	for _, c := range []struct {
		plan                    string
		recorded, copies, count int
	}{{"dp=3,tp=2", 6, 6, 1}, {"dp=3,tp=2", 5, 5, 1}, {"dp=3,tp=2,zero=2", 6, 2, 3}, {"dp=3,tp=2,zero=2", 5, 1, 3}} {
		r := spread(t, c.plan)
		held := r.Held()[name]
		for i, h := range held {
			own := shard.Part{Index: h.At.DP, Size: 3}.Of(h.Param.Len())
			r.Ranks[h.Rank] = append(r.Ranks[h.Rank],
				trace.Event{Kind: trace.KindDigest, Rank: h.Rank, What: trace.MomentM, Tensor: name, Digest: &kernels.Digest{}, Count: int64(own.Len())})
			if i < c.recorded {
				r.Ranks[h.Rank] = append(r.Ranks[h.Rank], trace.Event{Kind: trace.KindChanged, Rank: h.Rank, Tensor: name, Digest: &kernels.Digest{A: 1}, Count: 1})
			}
		}
		got := reread(t, r).Changes(held, 0)
		if len(got) != c.copies {
			t.Errorf("%s, %d of 6 recorded: %d copies, want %d", c.plan, c.recorded, len(got), c.copies)
		}
		for _, x := range got {
			if x.Event.Count != int64(c.count) || x.Event.Digest.A != uint64(c.count) {
				t.Errorf("%s: a copy of %d changes with digest %v, want %d", c.plan, x.Event.Count, x.Event.Digest, c.count)
			}
		}
	}
}

// Every rank is in one group, with those that hold the same.
func TestGroupsAndHolders(t *testing.T) {
	for _, p := range plans {
		r := spread(t, p)
		seen := map[int]bool{}
		for _, g := range r.Groups() {
			for _, rank := range g {
				if seen[rank] {
					t.Errorf("%s: rank %d is in two groups", p, rank)
				}
				seen[rank] = true
				if d := cmp.Diff(r.Layouts(g[0]), r.Layouts(rank)); d != "" {
					t.Errorf("%s: ranks %d and %d of one group hold other parts: %s", p, g[0], rank, d)
				}
			}
		}
		if len(seen) != r.Header.World {
			t.Errorf("%s: %d of %d ranks are in groups", p, len(seen), r.Header.World)
		}
		for unit, ranks := range r.Holders() {
			if want := r.Config.Plan.DP * r.Config.Plan.TP; len(ranks) != want {
				t.Errorf("%s: unit %s is on ranks %v, want %d of them", p, unit, ranks, want)
			}
		}
	}
}
