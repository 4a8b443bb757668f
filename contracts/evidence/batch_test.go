package evidence_test

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// The data-parallel ranks' micro-batches are those of all logical workers, each
// once, on the rank that computes its worker, one worker after the other.
func TestWorkerOfDealsAll(t *testing.T) {
	for _, p := range append(plans, "dp=1,microbatches=8", "dp=1,microbatches=12", "dp=2,zero=2,microbatches=6", "dp=4,microbatches=3", "dp=3,microbatches=2") {
		r := spread(t, p)
		type part struct{ worker, place int }
		dealt := map[part]int{}
		for dp := range r.Config.Plan.DP {
			for _, micro := range []int{-1, r.Config.Plan.MicroBatches} {
				if _, _, ok := r.WorkerOf(dp, micro); ok {
					t.Errorf("%s: rank %d has a micro-batch %d", p, dp, micro)
				}
			}
			walk := r.Config.Plan.RankWorkers(r.Config.Model, dp)
			for micro := range r.Config.Plan.MicroBatches {
				worker, place, ok := r.WorkerOf(dp, micro)
				if !ok || r.Owner(worker) != dp || slices.Index(walk, worker)*r.PerWorker()+place != micro {
					t.Errorf("%s: micro-batch %d of rank %d is number %d of worker %d, %v", p, micro, dp, place, worker, ok)
				}
				dealt[part{worker, place}]++
			}
		}
		for at, n := range dealt {
			if n != 1 {
				t.Errorf("%s: micro-batch %d of worker %d is dealt %d times", p, at.place, at.worker, n)
			}
		}
		if want := r.Workers * r.PerWorker(); len(dealt) != want {
			t.Errorf("%s: %d micro-batches are dealt, want %d", p, len(dealt), want)
		}
	}
}

// Micro-batches are listed in the order in which they are compared.
func TestMicroBatches(t *testing.T) {
	r := spread(t, "pp=2,microbatches=4")
	r.Steps = 3
	all := r.MicroBatches()
	if want := r.Steps * 4; len(all) != want || !slices.IsSortedFunc(all, evidence.MicroBatch.Compare) {
		t.Errorf("%d micro-batches, want %d in order: %v", len(all), want, all)
	}
	first := evidence.PhaseOf(trace.Event{Step: 1, Micro: 2, Unit: "a", What: trace.Forward})
	if want := (evidence.Phase{MicroBatch: evidence.MicroBatch{Step: 1, Micro: 2}, Unit: "a", What: trace.Forward}); first != want {
		t.Errorf("the phase is %v, want %v", first, want)
	}
	for _, later := range []trace.Event{
		{Step: 1, Micro: 2, Unit: "b", What: trace.Backward},
		{Step: 1, Micro: 3, Unit: "a", What: trace.Backward},
		{Step: 2, Unit: "a", What: trace.Backward},
	} {
		if first.Compare(evidence.PhaseOf(later)) >= 0 || evidence.PhaseOf(later).Compare(first) <= 0 {
			t.Errorf("%v is not before %v", first, later)
		}
	}
}

// The groups of an axis have every rank once, in the order of the axis.
func TestAlong(t *testing.T) {
	for _, p := range plans {
		r := spread(t, p)
		for axis, place := range map[names.Axis]func(names.Coord) int{
			names.DP: func(c names.Coord) int { return c.DP },
			names.TP: func(c names.Coord) int { return c.TP },
			names.PP: func(c names.Coord) int { return c.PP },
		} {
			seen := map[int]bool{}
			for _, group := range r.Along(axis) {
				for i, rank := range group {
					if seen[rank] || place(r.At(rank)) != i {
						t.Errorf("%s: group %v of axis %s: rank %d is in another one, or not in its place", p, group, axis, rank)
					}
					seen[rank] = true
				}
			}
			if len(seen) != r.Header.World {
				t.Errorf("%s: the groups of axis %s have %d of %d ranks", p, axis, len(seen), r.Header.World)
			}
		}
	}
}

// What an order holds for equal is one group, in the order in which it came.
func TestGrouped(t *testing.T) {
	type x struct{ key, at int }
	var all []x
	want := make([][]x, 3)
	for i := range 60 { // more than a sort does in order by chance
		all = append(all, x{(i + 1) % 3, i})
		want[(i+1)%3] = append(want[(i+1)%3], all[i])
	}
	got := evidence.Grouped(all, func(a, b x) int { return cmp.Compare(a.key, b.key) })
	if d := gocmp.Diff(want, got, gocmp.AllowUnexported(x{})); d != "" {
		t.Error(d)
	}
	if got := evidence.Grouped(nil, func(a, b x) int { return 0 }); len(got) != 0 {
		t.Errorf("nothing is grouped to %v", got)
	}
}
