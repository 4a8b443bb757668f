package comm_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

func host(int) kernels.Backend { return commtest.Memory{} }

func world(t testing.TB, size int, opts comm.Options) []comm.Communicator {
	t.Helper()
	if opts.Deadline == 0 {
		opts.Deadline = 10 * time.Second
	}
	comms, err := comm.NewLocal(size, host, opts)
	if err != nil {
		t.Fatal(err)
	}
	return comms
}

// observed is world with every operation recorded.
func observed(t testing.TB, size int, opts comm.Options, observe func(comm.Record)) []comm.Communicator {
	t.Helper()
	comms := world(t, size, opts)
	for r, c := range comms {
		comms[r] = comm.Recorded(c, observe)
	}
	return comms
}

// each runs f on all ranks at once and returns their errors, by rank.
func each(comms []comm.Communicator, f func(c comm.Communicator) error) []error {
	errs := make([]error, len(comms))
	var all sync.WaitGroup
	for i, c := range comms {
		all.Go(func() { errs[i] = f(c) })
	}
	all.Wait()
	return errs
}

// must fails the test unless f succeeds on all ranks.
func must(t testing.TB, comms []comm.Communicator, f func(c comm.Communicator) error) {
	t.Helper()
	for r, err := range each(comms, f) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func vector(x ...float32) kernels.Tensor {
	b, err := commtest.Memory{}.Alloc(len(x))
	if err != nil {
		panic(err)
	}
	t := kernels.Flat(b)
	commtest.Memory{}.Write(t, x)
	return t
}

func read(t kernels.Tensor) []float32 {
	x := make([]float32, t.Len())
	if err := (commtest.Memory{}).Read(x, t); err != nil {
		panic(err)
	}
	return x
}

func TestNewLocalRefuses(t *testing.T) {
	for name, open := range map[string]func() ([]comm.Communicator, error){
		"no ranks":      func() ([]comm.Communicator, error) { return comm.NewLocal(0, host, comm.Options{}) },
		"negative size": func() ([]comm.Communicator, error) { return comm.NewLocal(-1, host, comm.Options{}) },
		"unknown algorithm": func() ([]comm.Communicator, error) {
			return comm.NewLocal(1, host, comm.Options{Algorithm: "mesh"})
		},
		"an algorithm of MPI": func() ([]comm.Communicator, error) {
			return comm.NewLocal(1, host, comm.Options{Algorithm: names.MPI})
		},
		"negative deadline": func() ([]comm.Communicator, error) { return comm.NewLocal(1, host, comm.Options{Deadline: -1}) },
		"no backend": func() ([]comm.Communicator, error) {
			return comm.NewLocal(1, func(int) kernels.Backend { return nil }, comm.Options{})
		},
	} {
		if comms, err := open(); err == nil || comms != nil {
			t.Errorf("%s: got %v, %v; want an error", name, comms, err)
		}
	}
}

// foldAll is the all-reduce of single elements, as bits, on rank 0.
func foldAll(t *testing.T, algo names.Algorithm, op kernels.Op, x []float32) uint32 {
	var got uint32
	must(t, world(t, len(x), comm.Options{Algorithm: algo}), func(c comm.Communicator) error {
		v := vector(x[c.Rank()])
		err := c.AllReduce(t.Context(), v, op)
		if c.Rank() == 0 {
			got = kernels.Bits(read(v)[0])
		}
		return err
	})
	return got
}

// The documented limits: the star has the tree's bits up to three ranks, the
// ring up to two; one rank more and an input shows the difference.
func TestWhereOtherAlgorithmsEqualTheTree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	inputs := make([][]float32, 20)
	for i := range inputs {
		for range 8 {
			inputs[i] = append(inputs[i], float32(random.NormFloat64()))
		}
	}
	for algo, limit := range map[names.Algorithm]int{names.Star: 3, names.Ring: 2} {
		for n := 1; n <= 8; n++ {
			equal := true
			for _, x := range inputs {
				equal = equal && foldAll(t, algo, kernels.Sum, x[:n]) == foldAll(t, names.Tree, kernels.Sum, x[:n])
			}
			if want := n <= limit; equal != want {
				t.Errorf("%s of %d ranks equals the tree: %t, want %t", algo, n, equal, want)
			}
		}
	}
}

func TestMaximumOfOneRankIsThatOfReduce(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		got := foldAll(t, algo, kernels.Max, []float32{float32(math.NaN())})
		if want := math.Float32bits(float32(math.Inf(-1))); got != want {
			t.Errorf("%s: maximum of one NaN has bits %#x, want %#x", algo, got, want)
		}
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		comms := world(t, 4, comm.Options{})
		each(comms, func(c comm.Communicator) error {
			defer c.Close()
			q := comm.NewQueue(t.Context())
			q.Submit(func(ctx context.Context) error { return c.Barrier(ctx) })
			if err := q.Close(); err != nil || c.Rank() == 3 {
				return err
			}
			return c.AllReduce(t.Context(), vector(1, 2, 3), kernels.Sum) // rank 3 has left
		})
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}

// The cost of meeting, and of moving.
func BenchmarkAllReduce(b *testing.B) {
	for _, n := range []int{1, 1 << 16} {
		for _, size := range []int{2, 8} {
			b.Run(fmt.Sprintf("elements=%d/ranks=%d", n, size), func(b *testing.B) {
				comms := world(b, size, comm.Options{})
				b.SetBytes(int64(4 * n))
				must(b, comms, func(c comm.Communicator) error {
					x := vector(make([]float32, n)...)
					for range b.N {
						if err := c.AllReduce(b.Context(), x, kernels.Sum); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
