package sums_test

import (
	"math"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
	"github.com/lockstep-ml/lockstep/property/gen"
)

var _ = Describe("A grouped sum", Label("C-DDP-001", "C-TP-001"), func() {
	be := ref.New[float32]()
	small := func(t *rapid.T, name string) int { return rapid.IntRange(0, 9).Draw(t, name) }

	It("is the tree of the ranks' sums, for products with rows", func() {
		gen.Check("rows", func(t *rapid.T) {
			s := drawSource(t)
			groups, ranks := drawRanks(t)
			m, n, k := small(t, "M"), small(t, "N"), rapid.IntRange(0, 70).Draw(t, "K")
			a, b, bounds := s.tensor(be, m, k), s.tensor(be, n, k), cuts(t, k, groups)
			want := zeros(be, m, n)
			be.MatMulNT(want, a, b, bounds)
			parts := make([]kernels.Tensor, ranks)
			for r := range parts {
				parts[r] = zeros(be, m, n)
				ar, local := slice(a, bounds, r, ranks)
				br, _ := slice(b, bounds, r, ranks)
				be.MatMulNT(parts[r], ar, br, local)
			}
			be.Reduce(parts[:1], parts, kernels.Sum)
			same(t, "product", parts[0], want)
		})
	})

	It("is the tree of the ranks' sums, for chains through several products", func() {
		gen.Check("terms", func(t *rapid.T) {
			s := drawSource(t)
			groups, ranks := drawRanks(t)
			m, n := small(t, "M"), small(t, "N")
			whole := make([]kernels.Term, rapid.IntRange(1, 3).Draw(t, "terms"))
			for i := range whole {
				k := rapid.IntRange(0, 40).Draw(t, "K")
				whole[i] = kernels.Term{A: s.tensor(be, m, k), B: s.tensor(be, k, n), Groups: cuts(t, k, groups)}
			}
			want := zeros(be, m, n)
			be.MatMulNN(want, whole)
			parts := make([]kernels.Tensor, ranks)
			for r := range parts {
				own := make([]kernels.Term, len(whole))
				for i, w := range whole {
					a, local := slice(w.A, w.Groups, r, ranks)
					lo := w.Groups[shard.Part{Index: r, Size: ranks}.Of(groups).Lo]
					own[i] = kernels.Term{A: a, B: w.B.RowRange(lo, lo+a.Cols), Groups: local}
				}
				parts[r] = zeros(be, m, n)
				be.MatMulNN(parts[r], own)
			}
			be.Reduce(parts[:1], parts, kernels.Sum)
			same(t, "product", parts[0], want)
		})
	})

	It("is the tree of the ranks' sums, for exponentials of a split vocabulary", func() {
		gen.Check("exponentials", func(t *rapid.T) {
			s := drawSource(t)
			groups, ranks := drawRanks(t)
			n, v := small(t, "tokens"), rapid.IntRange(1, 150).Draw(t, "vocabulary")
			z, bounds := s.tensor(be, n, v), shard.Bounds(v, groups)
			top, want := zeros(be, 1, n), zeros(be, 1, n)
			be.LogitsMax(top, zeros(be, 1, n), z, make([]int32, n), 0)
			parts := make([]kernels.Tensor, ranks)
			for r := range parts {
				view, local := slice(z, bounds, r, ranks)
				own := zeros(be, n, view.Cols)
				for i := range n {
					be.Copy(own.RowRange(i, i+1), view.RowRange(i, i+1))
				}
				parts[r] = zeros(be, 1, n)
				be.LogitsExpSum(parts[r], own, top, local)
			}
			be.LogitsExpSum(want, z, top, bounds)
			be.Reduce(parts[:1], parts, kernels.Sum)
			same(t, "denominator", parts[0], want)
		})
	})

	It("over tokens continues through any cut into micro-batches", func() {
		gen.Check("tokens", func(t *rapid.T) {
			s := drawSource(t)
			m, n, k := small(t, "M"), small(t, "N"), rapid.IntRange(0, 40).Draw(t, "tokens")
			a, b, start := s.tensor(be, k, m), s.tensor(be, k, n), s.tensor(be, m, n)
			bias := s.tensor(be, 1, n)
			want, wantBias := zeros(be, m, n), zeros(be, 1, n)
			be.Copy(want, start)
			be.Copy(wantBias, bias)
			be.MatMulTN(want, a, b)
			be.ColumnSum(wantBias, b)
			bounds := cuts(t, k, rapid.IntRange(1, 5).Draw(t, "micro-batches"))
			for i := range len(bounds) - 1 {
				be.MatMulTN(start, a.RowRange(bounds[i], bounds[i+1]), b.RowRange(bounds[i], bounds[i+1]))
				be.ColumnSum(bias, b.RowRange(bounds[i], bounds[i+1]))
			}
			same(t, "gradient", start, want)
			same(t, "gradient of the bias", bias, wantBias)
		})
	})
})

// leaves are n tensors of which some are absent.
func leaves(t *rapid.T, be kernels.Backend, s *source, n, length int) []kernels.Tensor {
	out := make([]kernels.Tensor, n)
	for i, present := range rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "present") {
		if present {
			out[i] = s.tensor(be, 1, length)
		}
	}
	return out
}

// tree is the definition, element by element; a sum of nothing is -0.
func tree(be kernels.Backend, x []kernels.Tensor, length int) kernels.Tensor {
	out := make([]float32, length)
	for j := range out {
		leaf := make([]*float32, len(x))
		for i := range x {
			if !x[i].Absent() {
				v := ref.Data[float32](x[i])[j]
				leaf[i] = &v
			}
		}
		for d := 1; d < len(leaf); d *= 2 {
			for i := 0; i+d < len(leaf); i += 2 * d {
				if leaf[i] != nil && leaf[i+d] != nil {
					sum := *leaf[i] + *leaf[i+d]
					leaf[i] = &sum
				} else if leaf[i] == nil {
					leaf[i] = leaf[i+d]
				}
			}
		}
		out[j] = float32(math.Copysign(0, -1))
		if leaf[0] != nil {
			out[j] = *leaf[0]
		}
	}
	return tensorOf(be, 1, length, out)
}

var _ = Describe("The tree over workers", Label("C-DDP-001"), func() {
	be := ref.New[float32]()
	const length = 7
	minus := func(x kernels.Tensor) kernels.Tensor {
		if !x.Absent() {
			return x
		}
		y := zeros(be, 1, length)
		be.Fill(y, math.Copysign(0, -1))
		return y
	}

	It("leaves absent workers out, for any number", func() {
		gen.Check("absent", func(t *rapid.T) {
			x := leaves(t, be, drawSource(t), rapid.IntRange(1, 17).Draw(t, "workers"), length)
			got := zeros(be, 1, length)
			be.Reduce([]kernels.Tensor{got}, x, kernels.Sum)
			same(t, "sum", got, tree(be, x, length))
		})
	})

	It("does not see whether an absent worker was sent as -0", func() {
		gen.Check("minus-zero", func(t *rapid.T) {
			x := leaves(t, be, drawSource(t), rapid.IntRange(1, 17).Draw(t, "workers"), length)
			sent := make([]kernels.Tensor, len(x))
			for i := range x {
				sent[i] = minus(x[i])
			}
			got := zeros(be, 1, length)
			be.Reduce([]kernels.Tensor{got}, sent, kernels.Sum)
			same(t, "sum", got, tree(be, x, length))
		})
	})

	DescribeTable("is the same however the workers are dealt out to ranks", func(rounds bool) {
		gen.Check(map[bool]string{true: "rounds", false: "runs"}[rounds], func(t *rapid.T) {
			k := rapid.IntRange(0, 4).Draw(t, "log2 workers")
			workers, ranks := 1<<k, 1<<rapid.IntRange(0, k).Draw(t, "log2 ranks")
			x := leaves(t, be, drawSource(t), workers, length)
			counters := make([]*parallel.Counter, ranks)
			for r := range counters {
				c, err := parallel.NewCounter(&parallel.Meter{Backend: be}, names.MemGrads, length, workers/ranks)
				if err != nil {
					t.Fatal(err)
				}
				counters[r] = c
			}
			accs := make([]kernels.Tensor, ranks)
			for i := range workers / ranks {
				for r, c := range counters {
					w := r*workers/ranks + i
					if rounds {
						w = i*ranks + r
					}
					c.Start(rounds || !x[w].Absent())
					be.Copy(c.Acc(), minus(x[w]))
					accs[r] = c.Acc()
				}
				if rounds {
					be.Reduce(accs, accs, kernels.Sum)
				}
				for r, c := range counters {
					c.Fold(shard.Range{Hi: length}, i)
					c.End(i)
					accs[r] = c.Acc()
				}
			}
			if !rounds {
				be.Reduce(accs, accs, kernels.Sum)
			}
			same(t, "sum", accs[ranks-1], tree(be, x, length))
		})
	},
		Entry("in runs, reduced once", false),
		Entry("in rounds, reduced each", true),
	)
})
