package evidence_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// spread is a run of the fixture odd, of one step, that recorded nothing yet.
func spread(t *testing.T, p string) *evidence.Run {
	t.Helper()
	cfg, err := spec.Preset("odd")
	if err == nil {
		cfg.Plan, err = plan.Parse(p)
	}
	if err == nil {
		cfg.Steps = 1
		err = cfg.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &trace.History{Header: trace.Header{World: cfg.Plan.World(), Spec: cfg.Recorded()}, Ranks: map[int][]trace.Event{}}
	r, err := evidence.New(h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The slices of any plan add up to the whole tensor, and a slice is told from
// its neighbour.
func TestSlicesAddUp(t *testing.T) {
	for _, p := range []string{"dp=1", "tp=2", "tp=4,vocab=parallel", "dp=2,tp=2,pp=2", "pp=2,schedule=interleaved,virtual=2"} {
		r := spread(t, p)
		held := r.Held()
		for _, param := range r.Params {
			whole := trace.Event{Count: param.Len, Digest: &kernels.Digest{}, Data: make([]float32, param.Len)}
			for i := range whole.Data {
				whole.Data[i] = float32(i) - 7
				a, b := kernels.Mix(held[param.Name][0].Param.ID, uint64(i), uint64(kernels.Bits(whole.Data[i])))
				whole.Digest.Add(kernels.Digest{A: a, B: b})
			}
			var copies []evidence.Copy
			for _, h := range held[param.Name] {
				e, ok := evidence.SliceOf(h, whole)
				if !ok {
					t.Fatalf("%s: %s has no slice on rank %d", p, param.Name, h.Rank)
				}
				copies = append(copies, evidence.Copy{Holding: h, Event: e})
			}
			groups := evidence.BySlice(copies)
			if got := evidence.Whole(groups); !evidence.Same(got, whole) {
				t.Errorf("%s: slices of %s add up to %v of %d elements, want %v of %d", p, param.Name, got.Digest, got.Count, whole.Digest, whole.Count)
			}
			if len(groups) > 1 && evidence.Same(groups[0][0].Event, groups[1][0].Event) {
				t.Errorf("%s: two slices of %s have one digest", p, param.Name)
			}
		}
	}
}

// Data-parallel shares of a slice are one copy, replicas one each.
func TestCopiesJoinShares(t *testing.T) {
	r := spread(t, "dp=2,tp=2")
	const name = "model.norm.weight" // whole on every rank
	record := func(rank int, step int, count int64, a uint64) {
		r.Ranks[rank] = append(r.Ranks[rank], trace.Event{Kind: trace.KindDigest, Rank: rank, Step: step, What: trace.Grad, Tensor: name,
			Count: count, Digest: &kernels.Digest{A: a}})
	}
	for rank := range 4 {
		record(rank, 0, 35, 1)
		record(rank, 1, []int64{18, 18, 17, 17}[rank], uint64(rank))
	}
	r, err := evidence.New(r.History)
	if err != nil {
		t.Fatal(err)
	}
	held := r.Held()[name]
	if got := r.Copies(held, 0, trace.Grad, 0); len(got) != 4 || !got[3].Complete() {
		t.Errorf("replicas: %d copies %+v", len(got), got)
	}
	got := r.Copies(held, 1, trace.Grad, 0)
	if len(got) != 2 || !got[0].Complete() || got[0].Event.Digest.A != 2 || got[1].Event.Digest.A != 4 {
		t.Errorf("shares: %d copies %+v", len(got), got)
	}
}
