package zero_test

import (
	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/property/gen"
)

var _ = Describe("ZeRO", Label("C-ZERO-001"), func() {
	It("gives the bits of unsharded data parallelism of the same size, in every stage and form", func() {
		gen.Check("unsharded", func(t *rapid.T) {
			c := gen.Training(t, rapid.IntRange(1, 3))
			text := gen.Text(t, c)
			p := gen.Plan(t, c, gen.Axes{Data: true})
			ddp := plan.Plan{DP: p.DP}
			gen.Same(t, p, gen.Answer(t, c, text, p), ddp, gen.Answer(t, c, text, ddp))
		})
	})

	It("gives the bits of unsharded training where tensor and pipeline parallelism cut the model first", func() {
		gen.Check("cut", func(t *rapid.T) {
			c := gen.Training(t, rapid.IntRange(1, 4))
			text := gen.Text(t, c)
			p := gen.Plan(t, c, gen.Axes{Data: true, Tensor: true, Pipeline: true})
			plain := p
			plain.Zero, plain.Shard = 0, ""
			gen.Same(t, p, gen.Answer(t, c, text, p), plain, gen.Answer(t, c, text, plain))
		})
	})

	It("gives every element with a state one owner, by the rule of its form", func() {
		gen.Check("owners", func(t *rapid.T) {
			c := gen.Training(t, rapid.IntRange(1, 6))
			p := gen.Plan(t, c, gen.Axes{Data: true, Tensor: true, Pipeline: true})
			if p.Zero == 0 {
				p.Zero = 2
			}
			at := p.Dims().Coord(rapid.IntRange(0, p.World()-1).Draw(t, "rank"))
			for _, part := range p.Parts(c.Model, at) {
				l := model.NewLayout(c.Model, part)
				buckets, err := parallel.Buckets(p, c.Model, &l)
				if err != nil {
					t.Fatal(err)
				}
				checkOwners(t, p, &l, buckets)
			}
		})
	})
})

// checkOwners holds the buckets against the layout: they cover what has a
// state in order, ranks ascend within each, and flat shards are even.
func checkOwners(t *rapid.T, p plan.Plan, l *model.Layout, buckets []parallel.Bucket) {
	next := 0
	for i := range buckets {
		s := &buckets[i]
		if s.Source {
			continue
		}
		if s.Lo != next {
			t.Fatalf("%s: bucket %s starts at %d, the one before it ends at %d", p, s.Name, s.Lo, next)
		}
		next = s.Hi
		at, owners := s.Lo, 0
		for r := range p.DP {
			own := s.Own(r)
			if own.Lo != at || own.Hi < own.Lo {
				t.Fatalf("%s: rank %d owns %v of %s, whose next element is %d", p, r, own, s.Name, at)
			}
			at = own.Hi
			if own.Len() > 0 {
				owners++
			}
			if p.Shard == plan.ShardFlat && own.Len() != (shard.Part{Index: r, Size: p.DP}).Of(s.Len()).Len() {
				t.Fatalf("%s: rank %d owns %d of the %d elements of %s", p, r, own.Len(), s.Len(), s.Name)
			}
		}
		if at != s.Hi || p.Shard != plan.ShardFlat && owners != 1 {
			t.Fatalf("%s: bucket %s ends at %d, its owners at %d; %d ranks own a part", p, s.Name, s.Hi, at, owners)
		}
	}
	if next != l.Owned {
		t.Fatalf("%s: buckets end at %d, elements with a state at %d", p, next, l.Owned)
	}
}
