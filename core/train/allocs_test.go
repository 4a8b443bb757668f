package train_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// single gives every rank kernels that run on its own thread alone.
func single() launch.Parts {
	return launch.Parts{Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }}
}

// perStep is the number of allocations of a rank in a step after the first two:
// what 20 more steps cost. On two processors, so that the records the runtime
// keeps per processor for goroutines that wait weigh the same on every machine.
func perStep(t *testing.T, cfg spec.Config, parts launch.Parts) float64 {
	t.Helper()
	count := func(steps int) uint64 {
		cfg.Steps = steps
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		outcome(t, cfg, parts)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	count(2) // what only the first run of the process allocates
	few, many := count(2), count(22)
	if many < few {
		t.Fatalf("%s: 22 steps allocate %d times, 2 steps %d times", cfg.Plan, many, few)
	}
	return float64(many-few) / 20 / float64(cfg.Plan.World())
}

// A steady step allocates next to nothing, on any plan: what is left are the
// step's tokens and a few lists, about 8 objects per rank, whose number depends
// neither on layers and micro-batches nor on operations. The bar leaves room for
// what the runtime allocates for goroutines that wait.
func TestAllocationsOfASteadyStep(t *testing.T) {
	const bar = 24
	for _, p := range []string{"dp=1", "dp=2", "dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3", "dp=2,zero=3,microbatches=8", "tp=2", "tp=2,vocab=parallel", "pp=2", "pp=2,dp=2"} {
		cfg := config(t, "nano", p)
		cfg.Model.SeqLen, cfg.Recording.Digests = 5, false
		parts := single()
		parts.Keep = func(trace.Event) bool { return false }
		n := perStep(t, cfg, parts)
		t.Logf("%-28s %5.1f allocations per rank and step", p, n)
		if n > bar {
			t.Errorf("%s: %.1f allocations per rank and step, want at most %d", p, n, bar)
		}
	}
}

// With evidence on, a step keeps one digest for each event that has one, and
// the list of events grows: little else is allocated.
func TestAllocationsOfEvidence(t *testing.T) {
	for _, p := range []string{"dp=1", "dp=2", "dp=2,zero=3", "tp=2", "pp=2"} {
		cfg := config(t, "nano", p)
		cfg.Model.SeqLen = 5
		digests := 0
		cfg.Steps = 1
		for e := range outcome(t, cfg, single()).History.All {
			if e.Digest != nil && e.Step == 0 {
				digests++
			}
		}
		n, per := perStep(t, cfg, single()), float64(digests)/float64(cfg.Plan.World())
		t.Logf("%-28s %5.1f allocations per rank and step, %.1f digests", p, n, per)
		if n > per+64 {
			t.Errorf("%s: %.1f allocations per rank and step with %.1f digests, want at most 64 more", p, n, per)
		}
	}
}

// bound gives a model weights, gradients and a loss, and returns the flat
// buffers with one moment for AdamW each.
func bound(t *testing.T, be kernels.Backend, m *model.Model) (w, g, m1, m2 kernels.Tensor) {
	t.Helper()
	alloc := func(n int) kernels.Tensor {
		b, err := be.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		return kernels.Flat(b)
	}
	n := m.Layout.Grads
	w, g, m1, m2 = alloc(n), alloc(n), alloc(n), alloc(n)
	for u := range m.Layout.Units {
		r := m.Layout.Units[u].Range
		if r.Hi <= m.Layout.Weights {
			m.BindWeights(u, w.Range(r.Lo, r.Hi))
		}
		m.BindGrads(u, g.Range(r.Lo, r.Hi))
	}
	c := m.Config()
	m.Layout.Pieces(shard.Range{Hi: m.Layout.Weights}, func(p *model.Param, local shard.Range) {
		buf := make([]float32, local.Len())
		c.Initial(p, local, 1, buf)
		be.Write(w.Range(p.Off, p.Off+p.Len()), buf)
	})
	m.BindLoss(alloc(1))
	return w, g, m1, m2
}

// batchOf is the first sequences of a configuration's text as one micro-batch.
func batchOf(t *testing.T, cfg spec.Config, seqs int) model.Batch {
	t.Helper()
	set, err := cfg.Set(data.Default())
	if err != nil {
		t.Fatal(err)
	}
	b := model.Batch{Seqs: seqs, InvN: 1 / float64(set.Valid(0))}
	for _, s := range set.Step(0)[:seqs] {
		b.Tokens, b.Targets = append(b.Tokens, s.Tokens...), append(b.Targets, s.Targets...)
	}
	return b
}

// Model, kernels and optimizer allocate nothing.
func TestPassesAndUpdateDoNotAllocate(t *testing.T) {
	for _, name := range []string{"nano", "odd"} {
		for _, o := range []string{"adamw", "sgd"} {
			t.Run(fmt.Sprint(name, " ", o), func(t *testing.T) { noAllocations(t, config(t, name, ""), o) })
		}
	}
}

func noAllocations(t *testing.T, cfg spec.Config, optimizer string) {
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	const seqs = 2
	m, err := model.New(be, cfg.Model, model.Whole(cfg.Model), seqs)
	if err != nil {
		t.Fatal(err)
	}
	w, g, m1, m2 := bound(t, be, m)
	cfg.Optimizer.Name = optimizer
	opt, err := optim.New(cfg.Optimizer)
	if err != nil {
		t.Fatal(err)
	}
	moments := []kernels.Tensor{m1, m2}[:len(opt.Moments())]
	acts, err := m.NewActs(be, seqs)
	if err != nil {
		t.Fatal(err)
	}
	batch, ctx, step := batchOf(t, cfg, seqs), context.Background(), 0
	n := testing.AllocsPerRun(3, func() {
		if err := m.Forward(ctx, acts, batch); err != nil {
			t.Error(err)
		}
		if _, err := m.Backward(ctx, acts, kernels.Tensor{}); err != nil {
			t.Error(err)
		}
		opt.Update(be, w, g, moments, true, optim.Step{T: step, LR: 1e-3, Coef: 1})
		step++
	})
	if n != 0 {
		t.Errorf("%v allocations in a pass and an update, want none", n)
	}
}
