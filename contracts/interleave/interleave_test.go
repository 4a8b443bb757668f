package interleave_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/interleave"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// rank is what a test does on one rank.
type rank struct {
	*interleave.Scheduler
	comm.Communicator
	be  kernels.Backend
	all []kernels.Tensor // what any rank allocated first, by rank
}

// alloc allocates for a test that needs no more.
func (r *rank) alloc(n int) kernels.Tensor {
	b, err := r.be.Alloc(n)
	if err != nil {
		panic(err)
	}
	return kernels.Flat(b)
}

// play runs f on the ranks of a world by a schedule. Before it each has allocated
// eight zeros, and all have met.
func play(t *testing.T, size int, schedule interleave.Schedule, algorithm names.Algorithm, f func(context.Context, *rank) error) (*interleave.Scheduler, []error) {
	t.Helper()
	p := launch.Parts{Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }}
	s := interleave.Attach(&p, schedule)
	backends, err := p.Backends(size)
	if err != nil {
		t.Fatal(err)
	}
	comms, err := p.Open(t.Context(), backends, comm.Options{Algorithm: algorithm})
	if err != nil {
		t.Fatal(err)
	}
	errs, all := make([]error, size), make([]kernels.Tensor, size)
	s.Run(size, func(r int) {
		defer comms[r].Close()
		me := &rank{s, comms[r], backends[r], all}
		all[r] = me.alloc(8)
		if errs[r] = me.Barrier(t.Context()); errs[r] == nil {
			errs[r] = f(t.Context(), me)
		}
	})
	return s, errs
}

// schedules are all policies and some seeds.
func schedules() []interleave.Schedule {
	out := []interleave.Schedule{{Policy: interleave.Lowest}, {Policy: interleave.Highest}, {Policy: interleave.QueuesLast}, {Policy: interleave.QueuesFirst}, {Policy: interleave.RoundRobin}}
	for seed := range uint64(4) {
		out = append(out, interleave.Schedule{Policy: interleave.Random, Seed: seed})
	}
	return out
}

// kinds are the kinds of hazards of a run, sorted, each once.
func kinds(s *interleave.Scheduler) []string {
	var out []string
	for _, h := range s.Hazards() {
		out = append(out, h.What)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Hazards are found under every schedule, and there are none where something
// orders the two uses.
func TestHazards(t *testing.T) {
	reduce := func(r *rank) func(context.Context) error {
		return func(ctx context.Context) error { return r.AllReduce(ctx, r.all[r.Rank()], kernels.Sum) }
	}
	for _, c := range []struct {
		name string
		f    func(context.Context, *rank) error
		want []string
	}{
		{"a reduction alone", func(ctx context.Context, r *rank) error {
			x := r.all[r.Rank()]
			r.be.Fill(x, 1)
			err := r.AllReduce(ctx, x, kernels.Sum)
			r.be.Fill(x, 2)
			return err
		}, nil},
		{"a reduction that is awaited", func(ctx context.Context, r *rank) error {
			q := comm.NewQueueIn(ctx, r.Scheduler)
			r.be.Fill(r.all[r.Rank()], 1)
			q.Submit(reduce(r))
			err := q.Wait()
			r.be.Fill(r.all[r.Rank()], 2)
			return errors.Join(err, q.Close())
		}, nil},
		{"a reduction that is not", func(ctx context.Context, r *rank) error {
			q := comm.NewQueueIn(ctx, r.Scheduler)
			q.Submit(reduce(r))
			r.be.SumSquares(&kernels.SquareSum{}, r.all[r.Rank()])
			return q.Close()
		}, []string{trace.Unordered}},
		{"another function that is awaited", func(ctx context.Context, r *rank) error {
			q := comm.NewQueueIn(ctx, r.Scheduler)
			x := r.alloc(3)
			first := q.Submit(func(context.Context) error { return nil })
			q.Submit(func(context.Context) error { r.be.Fill(x, 1); return nil })
			err := q.WaitFor(first)
			r.be.Fill(x, 2)
			return errors.Join(err, q.Close())
		}, []string{trace.Unordered}},
		{"the function that is awaited", func(ctx context.Context, r *rank) error {
			q := comm.NewQueueIn(ctx, r.Scheduler)
			x := r.alloc(3)
			q.Submit(func(context.Context) error { return nil })
			err := q.WaitFor(q.Submit(func(context.Context) error { r.be.Fill(x, 1); return nil }))
			r.be.Fill(x, 2)
			return errors.Join(err, q.Close())
		}, nil},
		{"other elements", func(ctx context.Context, r *rank) error {
			q := comm.NewQueueIn(ctx, r.Scheduler)
			x := r.alloc(4)
			q.Submit(func(context.Context) error { r.be.Fill(x.Range(0, 2), 1); return nil })
			r.be.Fill(x.Range(2, 4), 1)
			return q.Close()
		}, nil},
		{"two that read", func(ctx context.Context, r *rank) error {
			q := comm.NewQueueIn(ctx, r.Scheduler)
			x := r.alloc(4)
			q.Submit(func(context.Context) error { r.be.SumSquares(&kernels.SquareSum{}, x); return nil })
			r.be.SumSquares(&kernels.SquareSum{}, x)
			return q.Close()
		}, nil},
		{"a peer's memory after a barrier", func(ctx context.Context, r *rank) error {
			if r.Rank() == 1 {
				r.be.Fill(r.all[1], 1)
			}
			err := r.Barrier(ctx)
			if r.Rank() == 0 {
				r.be.Fill(r.all[1], 2)
			}
			return err
		}, nil},
		{"a peer's memory before it", func(ctx context.Context, r *rank) error {
			r.be.Fill(r.all[1], 1)
			return r.Barrier(ctx)
		}, []string{trace.Unordered}},
		{"a message orders what was before it", func(ctx context.Context, r *rank) error {
			x := r.all[r.Rank()]
			switch r.Rank() {
			case 0:
				r.be.Fill(r.all[2], 3)
				return r.Send(ctx, x, 1)
			case 1:
				err := r.Recv(ctx, x, 0)
				r.be.Fill(r.all[2], 4)
				return err
			}
			return nil
		}, nil},
		{"a message orders nothing after it", func(ctx context.Context, r *rank) error {
			x := r.all[r.Rank()]
			switch r.Rank() {
			case 0:
				err := r.Send(ctx, x, 1)
				r.be.Fill(r.all[2], 3)
				return err
			case 1:
				err := r.Recv(ctx, x, 0)
				r.be.Fill(r.all[2], 4)
				return err
			}
			return nil
		}, []string{trace.Unordered}},
		{"memory that was given up", func(_ context.Context, r *rank) error {
			x := r.all[r.Rank()].Range(2, 5)
			r.Released(r.Rank(), x)
			return r.be.Read(make([]float32, 1), x.Range(2, 3))
		}, []string{trace.Released}},
		{"memory beside it", func(_ context.Context, r *rank) error {
			x := r.all[r.Rank()]
			r.Released(r.Rank(), x.Range(2, 5))
			return errors.Join(r.be.Read(make([]float32, 2), x.Range(0, 2)), r.be.Read(make([]float32, 3), x.Range(5, 8)))
		}, nil},
		{"columns beside it", func(_ context.Context, r *rank) error {
			x := r.all[r.Rank()].As(2, 4)
			r.Released(r.Rank(), r.all[r.Rank()])
			r.be.AddBias(x.ColRange(0, 2), r.alloc(2)) // reads what is given up
			r.be.Write(x.RowRange(0, 1), make([]float32, 4))
			return r.be.Read(make([]float32, 4), x.RowRange(0, 1))
		}, []string{trace.Released}},
		{"memory that was written since", func(_ context.Context, r *rank) error {
			x := r.all[r.Rank()]
			r.Released(r.Rank(), x)
			r.be.Fill(x, 1)
			return r.be.Read(make([]float32, 8), x)
		}, nil},
		{"memory that was freed", func(_ context.Context, r *rank) error {
			x := r.alloc(3)
			r.be.Free(x.Buf)
			return r.be.Read(make([]float32, 3), x)
		}, []string{trace.Released}},
		{"memory that is given up while a peer reads it", func(ctx context.Context, r *rank) error {
			q := comm.NewQueueIn(ctx, r.Scheduler)
			q.Submit(reduce(r))
			r.Released(r.Rank(), r.all[r.Rank()])
			return q.Close()
		}, []string{trace.Unordered}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, schedule := range schedules() {
				s, errs := play(t, 3, schedule, names.Tree, c.f)
				if err := errors.Join(errs...); err != nil {
					t.Errorf("%s: %v", schedule, err)
				}
				got := kinds(s)
				if slices.Contains(c.want, trace.Unordered) { // then more may show, or not
					got = slices.DeleteFunc(got, func(k string) bool { return k == trace.Released })
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("%s: %s %v", schedule, d, s.Hazards())
				}
			}
		})
	}
}

// What is given up is NaN.
func TestReleasedIsNaN(t *testing.T) {
	_, errs := play(t, 1, interleave.Schedule{Policy: interleave.Lowest}, names.Tree, func(_ context.Context, r *rank) error {
		x := make([]float32, 8)
		r.Released(0, r.all[0].Range(1, 7))
		if err := r.be.Read(x, r.all[0]); err != nil {
			return err
		}
		for i, v := range x {
			if (i > 0 && i < 7) != math.IsNaN(float64(v)) {
				t.Errorf("element %d is %v", i, v)
			}
		}
		return nil
	})
	if errs[0] != nil {
		t.Error(errs[0])
	}
}

// Collectives of every algorithm give their results, order what they should and
// make no hazard of their own.
func TestCollectives(t *testing.T) {
	for _, algorithm := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		for _, schedule := range schedules() {
			s, errs := play(t, 5, schedule, algorithm, func(ctx context.Context, r *rank) error {
				x, got := r.all[r.Rank()], make([]float32, 8)
				r.be.Fill(x, float64(1+r.Rank()))
				own := x.Range(0, 8/5)
				if r.Rank() < 3 {
					own = x.Range(0, 8/5+1)
				}
				sub, err := r.Split(ctx, r.Rank()%2, r.Rank())
				err = errors.Join(err, r.AllReduce(ctx, x, kernels.Sum), r.be.Read(got, x),
					r.AllGather(ctx, r.alloc(8), own, nil), r.ReduceScatter(ctx, own, r.alloc(8), nil, kernels.Sum),
					r.Broadcast(ctx, x, 3), sub.AllReduce(ctx, x, kernels.Max), sub.Barrier(ctx), sub.Close())
				if want := slices.Repeat([]float32{15}, 8); !slices.Equal(got, want) {
					t.Errorf("%s, %s: rank %d has %v", algorithm, schedule, r.Rank(), got)
				}
				return err
			})
			if err := errors.Join(errs...); err != nil || len(s.Hazards()) > 0 {
				t.Errorf("%s, %s: %v, hazards %v", algorithm, schedule, err, s.Hazards())
			}
		}
	}
}

// A run that is stuck ends, on every rank, and says who waits for whom.
func TestDeadlock(t *testing.T) {
	for _, schedule := range schedules() {
		s, errs := play(t, 2, schedule, names.Tree, func(ctx context.Context, r *rank) error {
			other, err := r.Split(ctx, 0, r.Rank())
			if err != nil {
				return err
			}
			first, second := r.Communicator, other
			if r.Rank() == 1 {
				first, second = second, first
			}
			q := comm.NewQueueIn(ctx, r.Scheduler)
			q.Submit(first.Barrier)
			if err := q.Wait(); err != nil {
				return errors.Join(err, q.Close())
			}
			return errors.Join(second.Barrier(ctx), q.Close())
		})
		for r, err := range errs {
			if err == nil {
				t.Errorf("%s: rank %d ended well", schedule, r)
			}
		}
		if len(s.Hazards()) != 1 || s.Hazards()[0].What != trace.Deadlock {
			t.Fatalf("%s: %v", schedule, s.Hazards())
		}
		for _, want := range []string{"rank 1 did not come to barrier", "in which rank 0 waits with its queue", "rank 0 did not come to barrier", "in which rank 1 waits with its queue"} {
			if text := s.Hazards()[0].Text; !strings.Contains(text, want) {
				t.Errorf("%s: %q does not say %q", schedule, text, want)
			}
		}
	}
}

// A goroutine that nobody asks for anything ends with the run, without a hazard.
func TestIdleQueueEnds(t *testing.T) {
	s, errs := play(t, 2, interleave.Schedule{Policy: interleave.Random}, names.Tree, func(ctx context.Context, r *rank) error {
		comm.NewQueueIn(ctx, r.Scheduler)
		return nil
	})
	if err := errors.Join(errs...); err != nil || len(s.Hazards()) > 0 {
		t.Errorf("%v, hazards %v", err, s.Hazards())
	}
}

// Policies choose whom they say: the order in which two ranks and what runs beside
// them, which compete for nothing, do four kernels each.
func TestPolicies(t *testing.T) {
	for policy, want := range map[interleave.Policy]string{
		interleave.Lowest:      "0000aaaa1111bbbb",
		interleave.Highest:     "bbbb1111aaaa0000",
		interleave.QueuesLast:  "00001111aaaabbbb",
		interleave.QueuesFirst: "aaaa0000bbbb1111",
		interleave.RoundRobin:  "0a1b0a1b0a1b0a1b",
	} {
		var got []byte
		_, errs := play(t, 2, interleave.Schedule{Policy: policy}, names.Tree, func(ctx context.Context, r *rank) error {
			x, y := r.alloc(1), r.alloc(1)
			do := func(x kernels.Tensor, mark byte) {
				for range 4 {
					r.be.Fill(x, 1)
					got = append(got, mark+byte(r.Rank()))
				}
			}
			r.Go("work", func() { do(y, 'a') })
			do(x, '0')
			return nil
		})
		if err := errors.Join(errs...); err != nil || string(got) != want {
			t.Errorf("%s: %s, want %s; %v", policy, got, want, err)
		}
	}
}

// A task that breaks down is its run's panic: the others end first.
func TestPanicOfATaskIsTheRuns(t *testing.T) {
	ended := false
	err := guard.Do(func() error {
		s := interleave.Attach(&launch.Parts{}, interleave.Schedule{Policy: interleave.Random, Seed: 1})
		s.Run(3, func(rank int) {
			if rank == 1 {
				panic("planted")
			}
			ended = true
		})
		return nil
	})
	if err == nil || !strings.HasPrefix(err.Error(), "panic: planted, in interleave_test.") || !ended {
		t.Errorf("got %v; others ended: %v", err, ended)
	}
}
