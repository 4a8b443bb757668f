package comm_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
	"github.com/lockstep-ml/lockstep/property/gen"
)

// worlds draws the number of ranks.
func worlds() *rapid.Generator[int] { return rapid.IntRange(1, 8) }

// drawOperations draws a sequence of operations of n ranks.
func drawOperations(t *rapid.T, n int) []operation {
	ops := make([]operation, rapid.IntRange(1, 12).Draw(t, "operations"))
	for i := range ops {
		ops[i] = drawOperation(t, n)
	}
	return ops
}

// doAll runs operations one after another.
func doAll(ctx context.Context, r rank, ops []operation) error {
	for i, o := range ops {
		if err := o.do(ctx, r); err != nil {
			return fmt.Errorf("operation %d, %+v: %w", i, o, err)
		}
	}
	return nil
}

// member is what one rank gives to a split.
type member struct{ Rank, Color, Key int }

// drawSplit draws a split of n ranks, and the groups that it must make, each in
// the order of its ranks.
func drawSplit(t *rapid.T, n int) (members []member, groups map[int][]int) {
	groups = map[int][]int{}
	for r := range n {
		members = append(members, member{r, rapid.IntRange(-1, 2).Draw(t, "color"), rapid.IntRange(-2, 2).Draw(t, "key")})
	}
	ordered := slices.Clone(members)
	slices.SortStableFunc(ordered, func(a, b member) int { return cmp.Compare(a.Key, b.Key) })
	for _, m := range ordered {
		groups[m.Color] = append(groups[m.Color], m.Rank)
	}
	return members, groups
}

var _ = Describe("The collectives of goroutine ranks", Label("C-COMM-001"), func() {
	It("give the canonical result for any sequence of operations", func() {
		gen.Check("sequences", func(t *rapid.T) {
			n := worlds().Draw(t, "ranks")
			ops := drawOperations(t, n)
			hold(t, n, names.Tree, func(ctx context.Context, r rank) error { return doAll(ctx, r, ops) })
		})
	})

	It("work in any groups split from the world", func() {
		gen.Check("splits", func(t *rapid.T) {
			n := worlds().Draw(t, "ranks")
			members, groups := drawSplit(t, n)
			ops := map[int][]operation{}
			for color := range 3 {
				if g := groups[color]; g != nil {
					ops[color] = drawOperations(t, len(g))
				}
			}
			hold(t, n, names.Tree, func(ctx context.Context, r rank) error {
				m := members[r.Rank()]
				sub, err := r.Split(ctx, m.Color, m.Key)
				if err != nil {
					return err
				}
				if m.Color < 0 {
					if sub != nil {
						return fmt.Errorf("color %d joined group %v", m.Color, sub.Ranks())
					}
					return nil
				}
				if want := groups[m.Color]; !slices.Equal(sub.Ranks(), want) || want[sub.Rank()] != m.Rank {
					return fmt.Errorf("group %v with this rank at %d, want %v", sub.Ranks(), sub.Rank(), want)
				}
				return doAll(ctx, rank{sub, r.be}, ops[m.Color])
			})
		})
	})

	It("reduce every element alike, however the vector is cut", func() {
		gen.Check("buckets", func(t *rapid.T) {
			n, count := worlds().Draw(t, "ranks"), sizes().Draw(t, "count")
			seed := rapid.Uint64().Draw(t, "seed")
			buckets := cuts(t, count, rapid.IntRange(1, 6).Draw(t, "buckets"))
			hold(t, n, names.Tree, func(ctx context.Context, r rank) error {
				x := r.tensor(vector(seed, r.Rank(), count))
				for i := range len(buckets) - 1 {
					if err := r.AllReduce(ctx, x.Range(buckets[i], buckets[i+1]), kernels.Sum); err != nil {
						return err
					}
				}
				return r.equal("bucketed all-reduce", x, reduced(seed, r.Ranks(), count, kernels.Sum))
			})
		})
	})

	It("reduce-scatter and gather to what an all-reduce gives", func() {
		gen.Check("scatter-gather", func(t *rapid.T) {
			n, count := worlds().Draw(t, "ranks"), sizes().Draw(t, "count")
			seed := rapid.Uint64().Draw(t, "seed")
			bounds := cuts(t, count, n)
			hold(t, n, names.Tree, func(ctx context.Context, r rank) error {
				x := r.tensor(vector(seed, r.Rank(), count))
				own := x.Range(bounds[r.Rank()], bounds[r.Rank()+1])
				if err := r.ReduceScatter(ctx, own, x, bounds, kernels.Sum); err != nil {
					return err
				}
				if err := r.AllGather(ctx, x, own, bounds); err != nil {
					return err
				}
				return r.equal("result", x, reduced(seed, r.Ranks(), count, kernels.Sum))
			})
		})
	})

	It("overlap on duplicates of a group, submitted in any order", func() {
		gen.Check("overlap", func(t *rapid.T) {
			n := worlds().Draw(t, "ranks")
			ops := [2][]operation{drawOperations(t, n), drawOperations(t, n)}
			second := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "second queue first")
			hold(t, n, names.Tree, func(ctx context.Context, r rank) error {
				var queues [2]*comm.Queue
				var ranks [2]rank
				for i := range queues {
					g, err := r.Split(ctx, 0, 0)
					if err != nil {
						return err
					}
					ranks[i], queues[i] = rank{g, r.be}, comm.NewQueue(ctx)
					defer queues[i].Close()
				}
				for i := range queues {
					if second[r.Rank()] {
						i = 1 - i
					}
					for _, o := range ops[i] {
						queues[i].Submit(func(ctx context.Context) error { return o.do(ctx, ranks[i]) })
					}
				}
				return errors.Join(queues[0].Wait(), queues[1].Wait())
			})
		})
	})

	It("fail on all ranks when one differs at any point", func() {
		gen.Check("mismatch", func(t *rapid.T) {
			n := rapid.IntRange(2, 8).Draw(t, "ranks")
			ops := drawOperations(t, n)
			odd := rapid.IntRange(0, n-1).Draw(t, "odd rank")
			at := rapid.IntRange(0, len(ops)-1).Draw(t, "at")
			errs := run(n, names.Tree, func(ctx context.Context, r rank) error {
				if r.Rank() != odd {
					if err := doAll(ctx, r, ops); err != nil {
						return err
					}
					return r.Barrier(ctx)
				}
				if err := doAll(ctx, r, ops[:at]); err != nil {
					return err
				}
				return r.AllReduce(ctx, r.tensor(make([]float32, 77777)), kernels.Max)
			})
			for i, err := range errs {
				var e *comm.Error
				if !errors.As(err, &e) || !errors.Is(err, comm.ErrMismatch) || e.Rank != i {
					t.Fatalf("rank %d, when rank %d differs at operation %d: %v", i, odd, at, err)
				}
			}
		})
	})

	DescribeTable("pass the drill in any order where sums are exact", func(algo names.Algorithm) {
		for n := 1; n <= 8; n++ {
			bes := make([]kernels.Backend, n)
			for i := range bes {
				bes[i] = ref.New[float32]()
			}
			be := func(r int) kernels.Backend { return bes[r] }
			comms, err := comm.NewLocal(n, be, comm.Options{Algorithm: algo})
			Expect(err).NotTo(HaveOccurred())
			seed := uint64(GinkgoRandomSeed())
			for _, rec := range comm.Drill(context.Background(), comms, be, seed, 0) {
				if rec.Input == drill.Integer || algo == names.Tree {
					Expect(drill.Verify(rec)).To(Succeed(), "%+v", rec)
				}
			}
		}
	},
		Entry("tree", names.Tree),
		Entry("ring", names.Ring),
		Entry("star", names.Star),
	)

	It("count every operation's bytes exactly", func() {
		gen.Check("bytes", func(t *rapid.T) {
			n, count := worlds().Draw(t, "ranks"), sizes().Draw(t, "count")
			sums := make([]int64, n)
			be := ref.New[float32]()
			comms, err := comm.NewLocal(n, func(int) kernels.Backend { return be }, comm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			errs := make(chan error)
			for _, c := range comms {
				c = comm.Recorded(c, func(r comm.Record) { sums[r.Rank] += r.Bytes })
				x := rank{c, be}.tensor(make([]float32, count))
				go func() {
					errs <- errors.Join(c.AllReduce(context.Background(), x, kernels.Sum), c.Broadcast(context.Background(), x, n-1))
				}()
			}
			for range comms {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			total := int64(0)
			for _, s := range sums {
				total += s
			}
			if want := 3 * 4 * int64(count) * int64(n-1); total != want {
				t.Fatalf("%d bytes were counted, want %d", total, want)
			}
		})
	})

	It("name the ranks of every record in the world", func() {
		records := make(chan comm.Record, 64)
		be := ref.New[float32]()
		comms, err := comm.NewLocal(3, func(int) kernels.Backend { return be }, comm.Options{})
		Expect(err).NotTo(HaveOccurred())
		done := make(chan error)
		for _, c := range comms {
			c = comm.Recorded(c, func(r comm.Record) { records <- r })
			go func() {
				sub, err := c.Split(context.Background(), min(c.Rank(), 1), -c.Rank())
				if err == nil {
					err = sub.Barrier(context.Background())
				}
				done <- err
			}()
		}
		for range comms {
			Expect(<-done).To(Succeed())
		}
		close(records)
		for r := range records {
			if r.Op == names.OpBarrier {
				Expect(r.Group).To(Equal([][]int{{0}, {2, 1}, {2, 1}}[r.Rank]))
			}
		}
	})
})
