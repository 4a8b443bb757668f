package train_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// run trains and checks that no goroutine outlives the run.
func run(t *testing.T, ctx context.Context, cfg spec.Config, parts launch.Parts) (*launch.Outcome, error) {
	t.Helper()
	before := runtime.NumGoroutine()
	out, err := launch.Local(ctx, cfg, data.Default(), parts)
	for end := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(end) {
			t.Errorf("%d goroutines before the run, %d after it", before, runtime.NumGoroutine())
			break
		}
		time.Sleep(time.Millisecond)
	}
	return out, err
}

// says fails the test unless err says all of parts.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("got error %v, want one that says %q", err, p)
		}
	}
}

// scarce is a backend whose allocation number at fails, counted from 0.
type scarce struct {
	kernels.Backend
	n  atomic.Int64
	at int64
}

var errScarce = errors.New("out of device memory")

func (s *scarce) Alloc(n int) (kernels.Buffer, error) {
	if s.n.Add(1)-1 == s.at {
		return nil, errScarce
	}
	return s.Backend.Alloc(n)
}

// on gives one rank a scarce backend.
func on(rank int, s *scarce) launch.Parts {
	return launch.Parts{Deadline: 20 * time.Second, Backend: func(r int) (kernels.Backend, error) {
		if r == rank {
			s.Backend = ref.New[float32]()
			return s, nil
		}
		return ref.New[float32](), nil
	}}
}

// Whichever allocation of one rank fails, at start or in the middle of a pass,
// all ranks end and the error names that rank.
func TestFailedAllocationEndsAllRanks(t *testing.T) {
	for _, p := range []string{"dp=4", "dp=3,zero=2", "dp=2,tp=2,zero=3", "dp=2,pp=2,zero=1"} {
		all := &scarce{at: -1}
		if _, err := run(t, t.Context(), small(t, "nano", p), on(2, all)); err != nil {
			t.Fatal(err)
		}
		n := all.n.Load()
		for _, at := range []int64{0, n / 3, n - 1} {
			out, err := run(t, t.Context(), small(t, "nano", p), on(2, &scarce{at: at}))
			if !errors.Is(err, errScarce) || !strings.HasPrefix(fmt.Sprint(err), "rank 2: ") {
				t.Errorf("%s, allocation %d of %d: error %v", p, at, n, err)
			}
			for e := range out.History.All {
				if e.Kind == trace.KindEnd {
					t.Errorf("%s, allocation %d of %d: rank %d says it ended regularly", p, at, n, e.Rank)
				}
			}
		}
	}
}

func TestBackendThatDoesNotOpen(t *testing.T) {
	_, err := run(t, t.Context(), small(t, "nano", "dp=2"), launch.Parts{Backend: func(r int) (kernels.Backend, error) {
		if r == 1 {
			return nil, errScarce
		}
		return ref.New[float32](), nil
	}})
	says(t, err, "backend of rank 1: out of device memory")
}

// broken panics in a kernel, as kernels do where shapes do not fit.
type broken struct{ kernels.Backend }

func (broken) SwiGLU(h, _, _ kernels.Tensor) { panic("kernels: swiglu: " + h.String()) }

func TestPanicBecomesTheRanksError(t *testing.T) {
	_, err := run(t, t.Context(), small(t, "nano", "dp=2"), launch.Parts{Backend: func(r int) (kernels.Backend, error) {
		if r == 1 {
			return broken{ref.New[float32]()}, nil
		}
		return ref.New[float32](), nil
	}})
	says(t, err, "rank 1: ", "panic: kernels: swiglu: tensor(", "blockForward")
}

func TestCancelledRunEndsAtOnce(t *testing.T) {
	cause := errors.New("enough")
	for _, p := range []string{"dp=1", "dp=2", "dp=2,tp=2,zero=3", "pp=2"} {
		cfg := small(t, "nano", p)
		cfg.Steps = 1 << 20
		ctx, cancel := context.WithCancelCause(t.Context())
		parts := plain()
		var cancelled time.Time
		parts.Progress = func(p train.Progress) {
			if p.Step == 1 {
				cancelled = time.Now()
				cancel(cause)
			}
		}
		out, err := run(t, ctx, cfg, parts)
		if took := time.Since(cancelled); !errors.Is(err, cause) || took > time.Second {
			t.Errorf("%s: ended %v after it was cancelled, with error %v", p, took, err)
		}
		if len(out.Loss) < 2 || out.History == nil {
			t.Errorf("%s: what was recorded is lost: losses %v", p, out.Loss)
		}
	}
}

// stuck waits in its first all-reduce until its context ends.
type stuck struct {
	comm.Communicator
	arrived context.CancelFunc
}

func (s stuck) AllReduce(ctx context.Context, _ kernels.Tensor, _ kernels.Op) error {
	s.arrived()
	<-ctx.Done()
	return context.Cause(ctx)
}

// A rank that hangs in a collective, and those that wait for it, end too.
func TestCancelledCollectiveEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	parts := plain()
	parts.Comm = func(rank int, group names.Axis, c comm.Communicator) comm.Communicator {
		if rank == 3 && group == names.TP {
			return stuck{c, cancel}
		}
		return c
	}
	begun := time.Now()
	_, err := run(t, ctx, small(t, "nano", "dp=2,tp=2"), parts)
	if !errors.Is(err, context.Canceled) || time.Since(begun) > 5*time.Second {
		t.Errorf("ended after %v with error %v", time.Since(begun), err)
	}
}

// source changes what a rank is fed.
type source struct {
	train.Source
	change func(seqs []data.Sequence, ids []int64) ([]data.Sequence, []int64)
}

func (s source) Sequences(step, worker, workers int) ([]data.Sequence, []int64) {
	return s.change(s.Source.Sequences(step, worker, workers))
}

func TestNoTokens(t *testing.T) {
	for _, p := range []string{"dp=1", "dp=4,zero=3", "tp=2", "dp=2,pp=2"} {
		parts := plain()
		parts.Source = func(_ int, s train.Source) train.Source {
			return source{s, func(seqs []data.Sequence, ids []int64) ([]data.Sequence, []int64) {
				for i := range seqs {
					for j := range seqs[i].Targets {
						seqs[i].Targets[j] = data.Ignore
					}
					seqs[i].Valid = 0
				}
				return seqs, ids
			}}
		}
		out, err := run(t, t.Context(), small(t, "nano", p), parts)
		if !errors.Is(err, data.ErrNoTokens) {
			t.Errorf("%s: %v", p, err)
		}
		for e := range out.History.All {
			if e.Kind == trace.KindScalar || e.Kind == trace.KindPhase || e.Kind == trace.KindDigest && e.Step >= 0 {
				t.Errorf("%s: without a token rank %d got as far as %+v", p, e.Rank, e)
				break
			}
		}
	}
}

func TestTooManySequences(t *testing.T) {
	parts := plain()
	parts.Source = func(rank int, s train.Source) train.Source {
		return source{s, func(seqs []data.Sequence, ids []int64) ([]data.Sequence, []int64) {
			if rank != 1 {
				return seqs, ids
			}
			return append(seqs, seqs...), append(ids, ids...)
		}}
	}
	_, err := run(t, t.Context(), small(t, "nano", "dp=2"), parts)
	says(t, err, "rank 1: step 0: micro-batch 0 of worker 4 has 4 sequences: the plan allows 2")
}

// quiet swallows broadcasts.
type quiet struct{ comm.Communicator }

func (quiet) Broadcast(context.Context, kernels.Tensor, int) error { return nil }

// Replicas that begin unequal are found before the first step: tensor, element
// and both values are named.
func TestUnequalReplicasAreNamed(t *testing.T) {
	for _, p := range []string{"dp=2", "dp=4,zero=2"} {
		cfg, parts := small(t, "odd", p), plain()
		last := cfg.Plan.DP - 1
		parts.Config = func(rank int, c spec.Config) spec.Config {
			if rank == last {
				c.Seed++
			}
			return c
		}
		parts.Comm = func(_ int, _ names.Axis, c comm.Communicator) comm.Communicator { return quiet{c} }
		_, err := run(t, t.Context(), cfg, parts)
		var v [2]float32
		l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
		for i := range v {
			cfg.Model.Initial(&l.Params[0], shard.Range{Hi: 1}, cfg.Seed+uint64(i), v[i:i+1])
		}
		says(t, err, "replicas differ after step -1: weight of model.embed_tokens.weight, element 0: ",
			fmt.Sprintf("rank 0 has bits %08x, rank %d has %08x", kernels.Bits(v[0]), last, kernels.Bits(v[1])))
	}
}

// flip inverts the lowest bit of one weight, or of one element of a moment,
// after the update of one step.
type flip struct {
	optim.Optimizer
	step, element, moment int // moment -1 is the weight
}

func (f flip) Update(be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step) {
	f.Optimizer.Update(be, w, g, moments, decays, s)
	at := f.element - w.Off
	if s.T != f.step || at < 0 || at >= w.Len() {
		return
	}
	x := w
	if f.moment >= 0 {
		x = moments[f.moment]
	}
	d := ref.Data[float32](x)
	d[at] = -d[at]
}

// The descent finds the one element that differs, wherever it lies, and every
// rank records it; a run that keeps going records it and goes on.
func TestFlippedElementIsFound(t *testing.T) {
	cfg := small(t, "nano", "dp=3")
	l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
	for i, place := range []struct{ param, index, moment int }{
		{0, 0, -1}, {3, 77, -1}, {8, l.Params[8].Len() - 1, -1}, {len(l.Params) - 1, l.Params[len(l.Params)-1].Len() - 1, -1}, {5, 31, 0}, {2, 1023, 1},
	} {
		p := &l.Params[place.param]
		parts := plain()
		parts.Optimizer = func(rank int, o optim.Optimizer) optim.Optimizer {
			if rank != 1 {
				return o
			}
			return flip{o, 1, p.Off + place.index, place.moment}
		}
		what := []string{trace.Weight, trace.MomentM, trace.MomentV}[place.moment+1]
		cfg.Recording.KeepGoing = i%2 == 1
		out, err := run(t, t.Context(), cfg, parts)
		if cfg.Recording.KeepGoing {
			if err != nil {
				t.Errorf("a run that keeps going ended: %v", err)
			}
		} else {
			says(t, err, fmt.Sprintf("step 1: replicas differ after step 1: %s of %s, element %d: rank 0 has bits ", what, p.Name, place.index), "rank 1 has ")
		}
		found := map[int]bool{}
		for e := range out.History.All {
			if e.Kind == trace.KindDiff {
				found[e.Rank] = e.Step == 1 && e.What == what && e.Tensor == p.Name && e.Index == int64(place.index) &&
					e.Got == e.Want^1<<31 && fmt.Sprint(e.Ranks) == "[0 1]"
			}
		}
		if !found[0] || !found[1] || !found[2] {
			t.Errorf("%s %s, element %d: ranks that found it: %v", what, p.Name, place.index, found)
		}
	}
}
