package train

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Checkpoints says where and when a run stores its state, and what it goes on
// from. Under which plan a checkpoint was made does not matter.
type Checkpoints struct {
	Dir    string                 // "" stores nothing
	Every  int                    // optimizer steps between checkpoints; 0 is after the last step only
	Resume *checkpoint.Checkpoint // nil starts from the seed
	// Stop, where not nil, is asked after every step but the last whether the run
	// ends there, with a checkpoint where Dir is one. It gives all ranks the same
	// answer.
	Stop func(step int) bool
}

// due says whether a checkpoint follows the given step, and whether the run ends
// early with it.
func (c *Checkpoints) due(step, steps int) (store, stop bool) {
	stop = step < steps-1 && c.Stop != nil && c.Stop(step)
	return c.Dir != "" && (stop || step == steps-1 || c.Every > 0 && (step+1)%c.Every == 0), stop
}

// stored is a rectangle of the rank's state with the tensor that holds it.
type stored struct {
	checkpoint.Rect
	at kernels.Tensor
}

// stores lists what this rank stores (all false: each logical element on one
// rank only) or holds (all true).
func (r *rank) stores(all bool) []stored {
	var out []stored
	for h := range r.held {
		if all || h.counts() {
			out = append(out, h.rects(all)...)
		}
	}
	return out
}

// rects cuts the state into rectangles of logical tensors.
func (h *held) rects(all bool) []stored {
	var out []stored
	h.chunk.model.Layout.Pieces(h.Range, func(p *model.Param, local shard.Range) {
		if !p.Counts && !all {
			return
		}
		name := p.Name
		if p.ID == kernels.TensorID(model.EmbedName) {
			name = model.EmbedName // a tied head is the embedding
		}
		p.Places(local, func(l shard.Range, rows, cols int, pl kernels.Place) {
			row, col := int(pl.First)/p.Cols, int(pl.First)%p.Cols
			x := l.Shift(p.Off - h.Lo)
			out = append(out, stored{checkpoint.Rect{What: h.what, Tensor: name,
				R: shard.Range{Lo: row, Hi: row + rows}, C: shard.Range{Lo: col, Hi: col + cols}}, h.at.Range(x.Lo, x.Hi)})
		})
	})
	return out
}

// digests adds up the digests, per kind, of what this rank stores.
func (r *rank) digests() map[string]kernels.Digest {
	sums := map[string]*kernels.Digest{}
	for h := range r.held {
		if h.counts() {
			if sums[h.what] == nil {
				sums[h.what] = new(kernels.Digest)
			}
			h.digest(sums[h.what], r.seen.Sums, h.Range, true)
		}
	}
	r.seen.Sums.Wait()
	out := map[string]kernels.Digest{}
	for what, d := range sums {
		out[what] = *d
	}
	return out
}

// save stores the state after a step: every rank its file, then rank 0 the
// manifest, whose presence completes the checkpoint.
func (r *rank) save(ctx context.Context, step int) error {
	ctx = comm.WithLabel(ctx, comm.Label{Group: names.World, Tensor: names.Checkpoint, Step: step})
	root, xs := r.hooks.Checkpoints.Dir, r.stores(false)
	rects := make([]checkpoint.Rect, len(xs))
	for i := range xs {
		rects[i] = xs[i].Rect
	}
	if r.id == 0 {
		if err := checkpoint.Clear(root, step+1); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	if err := r.mesh.World.Barrier(ctx); err != nil {
		return err
	}
	f, err := checkpoint.Save(checkpoint.Pending(root, step+1), r.id, rects, checkpoint.Metadata(step+1, r.counter), func(i int) ([]float32, error) {
		x := make([]float32, xs[i].at.Len())
		return x, r.be.Read(x, xs[i].at)
	})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	type part struct {
		File    checkpoint.File
		Digests map[string]kernels.Digest
	}
	mine, err := json.Marshal(part{f, r.digests()})
	if err != nil {
		return err
	}
	all, err := r.mesh.World.AllGatherBytes(ctx, mine)
	if err != nil {
		return err
	}
	if r.id == 0 {
		m := checkpoint.Manifest{Schema: checkpoint.Schema, Arithmetic: kernels.Arithmetic, Step: step + 1, Counter: r.counter,
			Spec: r.cfg.Spec(), Digests: map[string]kernels.Digest{}, Simulated: kernels.Simulated(r.hooks.Checkpoints.Mark(r.be.Name()))}
		for i, b := range all {
			var p part
			if err := json.Unmarshal(b, &p); err != nil {
				return fmt.Errorf("checkpoint: rank %d: %w", i, err)
			}
			m.Files = append(m.Files, p.File)
			for what, d := range p.Digests {
				sum := m.Digests[what]
				sum.Add(d)
				m.Digests[what] = sum
			}
		}
		if err := checkpoint.Complete(root, m); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	return r.mesh.World.Barrier(ctx)
}

// Mark is the name of a backend, with the mark where a simulated device has computed some
// of the state that the run goes on from: what follows proves no more of a real one.
func (c *Checkpoints) Mark(backend string) string {
	if c.Resume != nil && c.Resume.Manifest.Simulated && !kernels.Simulated(backend) {
		backend += ", resumed from " + kernels.SimulatedMark
	}
	return backend
}

// resume fills weights and moments from a checkpoint and proves, by the digests
// of all logical elements, that what was loaded is what was stored.
func (r *rank) resume(ctx context.Context, c *checkpoint.Checkpoint) error {
	if err := Resumable(c, r.cfg); err != nil {
		return err
	}
	for _, s := range r.stores(true) {
		buf := make([]float32, s.Len())
		if err := c.Read(s.Rect, buf); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		r.be.Write(s.at, buf)
	}
	r.counter, r.first = c.Manifest.Counter, c.Manifest.Step
	r.log.Record(trace.Event{Kind: trace.KindResume, Step: c.Manifest.Step, Count: int64(c.Manifest.Counter)})
	mine := r.digests()
	ctx = comm.WithLabel(ctx, comm.Label{Group: names.World, Tensor: names.Checkpoint, Step: -1})
	for _, what := range append([]string{trace.Weight}, r.opt.Moments()...) {
		sum := []uint64{mine[what].A, mine[what].B}
		if err := r.mesh.World.AllReduceInt(ctx, sum, kernels.Sum); err != nil {
			return err
		}
		if want := c.Manifest.Digests[what]; sum[0] != want.A || sum[1] != want.B {
			return fmt.Errorf("checkpoint %s: %s has digest %v after loading, %v when stored", c.Dir, what, kernels.Digest{A: sum[0], B: sum[1]}, want)
		}
	}
	return nil
}

// Resumable refuses a checkpoint that cfg cannot go on from: of a run that
// computes something else (see compatible), at its last step already, or with other tensors than the run's.
func Resumable(c *checkpoint.Checkpoint, cfg spec.Config) error {
	if err := compatible(c.Manifest.Spec, cfg); err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.Dir, err)
	}
	if c.Manifest.Step >= cfg.Steps {
		return fmt.Errorf("checkpoint %s: is after step %d, steps=%d: must be more", c.Dir, c.Manifest.Step, cfg.Steps)
	}
	rects, err := whole(cfg)
	if err == nil {
		err = c.Holds(rects)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// whole lists the tensors of a run's state, each of its kinds and moments.
func whole(cfg spec.Config) (out []checkpoint.Rect, err error) {
	opt, err := optim.New(cfg.Optimizer)
	if err != nil {
		return nil, err
	}
	l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
	for _, what := range append([]string{trace.Weight}, opt.Moments()...) {
		for i := range l.Params {
			if p := &l.Params[i]; p.Off < l.Owned { // a tied head is the embedding
				out = append(out, checkpoint.Rect{What: what, Tensor: p.Name, R: shard.Range{Hi: p.Rows}, C: shard.Range{Hi: p.Cols}})
			}
		}
	}
	return out, nil
}
