package train_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// late is a backend whose sums are there after Wait, as those of a device are.
type late struct{ *ref.Backend[float32] }

func (l late) Sums() kernels.Sums { return &lateSums{be: l.Backend} }

type lateSums struct {
	be    kernels.Backend
	mu    sync.Mutex
	adds  []func()
	waits int
}

func (s *lateSums) later(add func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adds = append(s.adds, add)
}

func (s *lateSums) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	var sum kernels.Digest
	s.be.Hash(&sum, x, at)
	s.later(func() { d.Add(sum) })
}

func (s *lateSums) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	var sum kernels.SquareSum
	s.be.SumSquares(&sum, x)
	s.later(func() { acc.Add(&sum) })
}

func (s *lateSums) HashChanged(d *kernels.Digest, changed *int, x, old kernels.Tensor, at kernels.Place) {
	var sum kernels.Digest
	n := s.be.HashChanged(&sum, x, old, at)
	s.later(func() { d.Add(sum); *changed += n })
}

func (s *lateSums) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, add := range s.adds {
		add()
	}
	s.adds = nil
	s.waits++
}

// TestSumsThatAreLate: a backend whose sums are there later records the same, in the same
// order, as one that has them at once.
func TestSumsThatAreLate(t *testing.T) {
	for _, p := range []string{"dp=1", "dp=2", "dp=2,zero=3,microbatches=4", "tp=2,vocab=parallel", "pp=2,dp=2"} {
		cfg := small(t, "nano", p)
		cfg.Recording.Workers, cfg.Recording.Taps = true, true
		sameRecords(t, cfg, nil)
	}
}

// TestSumsOfAFailure: what a rank recorded up to its failure is there, complete.
func TestSumsOfAFailure(t *testing.T) {
	cfg := small(t, "nano", "dp=1")
	cfg.Recording.Taps = true
	sameRecords(t, cfg, func(_ int, o optim.Optimizer) optim.Optimizer { return failing{o} })
}

// TestSumsOfReplicas: replicas that differ are found.
func TestSumsOfReplicas(t *testing.T) {
	cfg := small(t, "nano", "dp=2")
	sameRecords(t, cfg, func(rank int, o optim.Optimizer) optim.Optimizer { return astray{o, rank} })
}

// astray takes steps of another length on rank 1.
type astray struct {
	optim.Optimizer
	rank int
}

func (a astray) Update(be kernels.Backend, w, g kernels.Tensor, m []kernels.Tensor, decays bool, s optim.Step) {
	s.LR *= float64(1 + a.rank)
	a.Optimizer.Update(be, w, g, m, decays, s)
}

// failing breaks down in the second step.
type failing struct{ optim.Optimizer }

func (f failing) Update(be kernels.Backend, w, g kernels.Tensor, m []kernels.Tensor, decays bool, s optim.Step) {
	if s.T == 1 {
		panic("the optimizer fails")
	}
	f.Optimizer.Update(be, w, g, m, decays, s)
}

// sameRecords compares what is written with sums that are there at once and later.
func sameRecords(t *testing.T, cfg spec.Config, optimizer func(int, optim.Optimizer) optim.Optimizer) {
	t.Helper()
	var histories [2]*trace.History
	var there [2][]int // events of the reporting rank when a step is done
	for i := range histories {
		parts := launch.Parts{Backend: func(int) (kernels.Backend, error) {
			if i == 0 {
				return ref.New[float32](), nil
			}
			return late{ref.New[float32]()}, nil
		}}
		parts.Optimizer, parts.History = optimizer, filepath.Join(t.TempDir(), "history")
		var log *trace.Log
		parts.Logs = func(l *trace.Log) { log = l } // of the last rank, which in a world of one reports
		parts.Progress = func(train.Progress) {
			if cfg.Plan.World() == 1 {
				there[i] = append(there[i], len(log.Events()))
			}
		}
		_, err := launch.Local(t.Context(), cfg, data.Default(), parts)
		if (err != nil) != (optimizer != nil) {
			t.Fatalf("%s: %v", cfg.Plan, err)
		}
		read, err := trace.Load(parts.History)
		if err != nil {
			t.Fatal(err)
		}
		histories[i] = read[0]
	}
	if !slices.Equal(there[0], there[1]) {
		t.Errorf("%s: %d events are recorded after the steps, want %d", cfg.Plan, there[1], there[0])
	}
	for rank := range histories[0].Ranks {
		want, wantAll := lines(t, histories[0].Ranks[rank])
		got, all := lines(t, histories[1].Ranks[rank])
		if len(want) < 100 {
			t.Errorf("%s, rank %d: only %d events", cfg.Plan, rank, len(want))
		}
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("%s, rank %d: event %d of %d and %d differs from %s", cfg.Plan, rank, i, len(got), len(want), want[i])
			}
		}
		if !slices.Equal(all, wantAll) {
			t.Errorf("%s, rank %d: %d events, want %d, and not the same ones", cfg.Plan, rank, len(all), len(wantAll))
		}
	}
}

// lines are events as files have them: in order those of the rank's own goroutine, and all,
// sorted. Where tensors lie is left out.
func lines(t *testing.T, events []trace.Event) (own, all []string) {
	t.Helper()
	for _, e := range events {
		e.Span = nil
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if !e.Overlap && e.Kind != trace.KindIssue && e.Kind != trace.KindGather {
			own = append(own, string(b))
		}
		all = append(all, string(b))
	}
	slices.Sort(all)
	return own, all
}
