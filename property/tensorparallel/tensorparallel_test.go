package tensorparallel_test

import (
	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/property/gen"
)

var _ = Describe("Tensor parallelism", Label("C-TP-001"), func() {
	It("gives the bits of one worker for every size that divides the groups, vocabulary split or not", func() {
		gen.Check("one-answer", func(t *rapid.T) {
			c := gen.Training(t, rapid.IntRange(1, 3))
			text := gen.Text(t, c)
			p := gen.Plan(t, c, gen.Axes{Tensor: true, Data: rapid.Bool().Draw(t, "data parallel too")})
			control := p.Unsplit(c.Model)
			gen.Same(t, p, gen.Answer(t, c, text, p), control, gen.Answer(t, c, text, control))
		})
	})

	It("keeps what tensor-parallel ranks replicate equal", func() {
		gen.Check("replicas", func(t *rapid.T) {
			c := gen.Training(t, rapid.IntRange(1, 2))
			p := gen.Plan(t, c, gen.Axes{Tensor: true})
			checkReplicas(t, p, gen.Run(t, c, gen.Text(t, c), p, launch.Parts{}).History)
		})
	})

	It("cuts every parameter into slices that cover it, as often as it is replicated", func() {
		gen.Check("slices", func(t *rapid.T) {
			c := gen.Training(t, rapid.IntRange(1, 2)).Model
			tp := 1
			for tp < c.Groups.Tensor && rapid.Bool().Draw(t, "double tp") {
				tp *= 2
			}
			vocab := rapid.Bool().Draw(t, "vocabulary split")
			held, counts := map[string][]int{}, map[string]int{}
			for r := range tp {
				part := model.Whole(c)
				part.Tensor, part.VocabParallel = shard.Part{Index: r, Size: tp}, vocab && tp > 1
				l := model.NewLayout(c, part)
				for i := range l.Params {
					count(&l, &l.Params[i], held, counts)
				}
			}
			for name, by := range held {
				for i, n := range by {
					if n != by[0] || n < 1 || counts[name] != len(by) {
						t.Fatalf("tp=%d: element %d of %s is held by %d ranks, element 0 by %d; %d of %d elements count", tp, i, name, n, by[0], counts[name], len(by))
					}
				}
			}
		})
	})
})

// count adds what a rank holds of a parameter: ranks by element, and the
// elements whose copy counts.
func count(l *model.Layout, p *model.Param, held map[string][]int, counts map[string]int) {
	if p.Off >= l.Owned {
		return // a tied head is the embedding
	}
	if held[p.Name] == nil {
		held[p.Name] = make([]int, p.Rows*p.Cols)
	}
	for i := p.R.Lo; i < p.R.Hi; i++ {
		for j := p.C.Lo; j < p.C.Hi; j++ {
			held[p.Name][i*p.Cols+j]++
		}
	}
	if p.Counts {
		counts[p.Name] += p.Len()
	}
}

// checkReplicas compares the digests of parameters that every rank holds whole.
func checkReplicas(t *rapid.T, p plan.Plan, h *trace.History) {
	type key struct {
		step         int
		what, tensor string
	}
	type seen struct {
		digest kernels.Digest
		count  int64
		ranks  int
	}
	all := map[key]*seen{}
	for e := range h.All {
		replicated := e.Unit == model.FinalUnit || e.Unit == model.EmbedUnit && p.Vocab != plan.VocabParallel
		if e.Kind != trace.KindDigest || e.Digest == nil || !replicated || e.Tensor == model.HeadName && p.Vocab == plan.VocabParallel {
			continue
		}
		k := key{e.Step, e.What, e.Tensor}
		s := all[k]
		if s == nil {
			all[k] = &seen{digest: *e.Digest, count: e.Count, ranks: 1}
			continue
		}
		s.ranks++
		if *e.Digest != s.digest || e.Count != s.count {
			t.Fatalf("%s: step %d: %s of %s is %v on rank %d, %v elsewhere", p, e.Step, e.What, e.Tensor, e.Digest, e.Rank, s.digest)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s: nothing replicated was recorded", p)
	}
	for k, s := range all {
		if s.ranks != p.TP {
			t.Fatalf("%s: %+v was recorded by %d ranks", p, k, s.ranks)
		}
	}
}
