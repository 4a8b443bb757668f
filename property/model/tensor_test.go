package model_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/mesh"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
	"github.com/lockstep-ml/lockstep/property/gen"
)

// runParts runs the tensor-parallel parts of a model together on one batch.
func runParts(t *rapid.T, c model.Config, p plan.Plan, seed uint64, b model.Batch) []*part[float32] {
	parts := make([]*part[float32], p.TP)
	for r := range parts {
		var err error
		if parts[r], err = newPart[float32](c, p.Parts(c, names.Coord{TP: r})[0], seed, b.Seqs); err != nil {
			t.Fatal(err)
		}
	}
	comms, err := comm.NewLocal(p.TP, func(r int) kernels.Backend { return parts[r].be }, comm.Options{Deadline: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, p.TP)
	var all sync.WaitGroup
	for r, m := range parts {
		all.Go(func() {
			defer comms[r].Close()
			ctx := context.Background()
			groups, err := mesh.New(ctx, comms[r], p.Dims(), p.KVReplicas(c))
			if err != nil {
				errs[r] = err
				return
			}
			m.TP = groups.TP
			if groups.KV.Size() > 1 {
				m.KV = groups.KV
			}
			errs[r] = m.run(ctx, b)
		})
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return parts
}

// checkPart compares a rank's gradients with the slices of the whole's, element
// for element by their places in the logical tensors, and counts the elements
// that count.
func checkPart(t *rapid.T, rank int, got, whole *part[float32], counted map[string]int) {
	dense := map[string][]float32{}
	for i := range whole.Layout.Params {
		p := &whole.Layout.Params[i]
		dense[p.Name] = whole.g[p.Off : p.Off+p.Len()]
	}
	for i := range got.Layout.Params {
		p := &got.Layout.Params[i]
		p.Places(shard.Range{Hi: p.Len()}, func(r shard.Range, _, cols int, at kernels.Place) {
			for e := range r.Len() {
				index := at.First + uint64(e/cols)*at.RowStride + uint64(e%cols)
				if g, w := got.g[p.Off+r.Lo+e], dense[p.Name][index]; kernels.Bits(g) != kernels.Bits(w) {
					t.Fatalf("rank %d: gradient of %s, element %d is %v (%08x), the whole model's %v (%08x)", rank, p.Name, index, g, kernels.Bits(g), w, kernels.Bits(w))
				}
			}
			if p.Counts {
				counted[p.Name] += r.Len()
			}
		})
	}
}

var _ = Describe("Tensor-parallel parts", Label("C-TP-001"), func() {
	It("give the bits of the whole model", func() {
		gen.Check("parts", func(t *rapid.T) {
			c := gen.Config(t, 3)
			b, seed := drawBatch(t, c), rapid.Uint64().Draw(t, "seed")
			var sizes []int
			for n := 1; n <= c.Groups.Tensor; n *= 2 {
				sizes = append(sizes, n)
			}
			p := plan.Plan{DP: 1, PP: 1, TP: rapid.SampledFrom(sizes).Draw(t, "tp"), Vocab: rapid.SampledFrom([]string{plan.VocabReplicated, plan.VocabParallel}).Draw(t, "vocab")}
			whole, err := newPart[float32](c, model.Whole(c), seed, b.Seqs)
			if err != nil {
				t.Fatal(err)
			}
			if err := whole.run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			if !whole.finite() {
				t.Fatalf("the whole model's gradient is not finite")
			}
			counted := map[string]int{}
			for r, got := range runParts(t, c, p, seed, b) {
				checkPart(t, r, got, whole, counted)
				if g, w := ref.Data[float32](got.loss)[0], ref.Data[float32](whole.loss)[0]; kernels.Bits(g) != kernels.Bits(w) {
					t.Fatalf("rank %d: loss %v, the whole model's %v", r, g, w)
				}
			}
			for i := range whole.Layout.Params {
				if q := &whole.Layout.Params[i]; q.Off < whole.Layout.Owned && counted[q.Name] != q.Len() {
					t.Fatalf("%d of the %d elements of %s count", counted[q.Name], q.Len(), q.Name)
				}
			}
		})
	})
})
