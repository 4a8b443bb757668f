package train

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/mesh"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// rank is one rank of a run.
type rank struct {
	id    int
	cfg   spec.Config
	hooks Hooks
	be    kernels.Backend
	log   trace.Recorder
	world comm.Communicator
	begun time.Time

	mesh    *mesh.Mesh
	dp      comm.Communicator // mesh.DP and mesh.Overlap as decorated
	overlap comm.Communicator
	source  Source
	opt     optim.Optimizer
	meter   parallel.Meter
	seen    *parallel.Evidence // recorded in log
	queue   *comm.Queue        // of overlap: one for all chunks, as a communicator has one operation at a time
	labels  comm.Labels        // of this goroutine's operations, but those of updaters and models
	chunks  []*chunk           // in the order of the layers
	cutter  *parallel.Cutter
	stage   *stage
	seqs    int // capacity of a micro-batch
	counter int // optimizer steps taken
	first   int // first step of this run: 0, or where a checkpoint goes on
	losses  []float64
	told    Progress // what progress says of the step's update

	// What all-reduces of integers work on.
	tokens  [1]uint64
	squares kernels.SquareSum
}

// close ends the queue, whose error it gives, and has recorded what was held back.
func (r *rank) close() error {
	if r.seen != nil {
		defer r.seen.Settle()
	}
	if r.queue == nil {
		return nil
	}
	return r.queue.Close()
}

// released tells the run of memory that is kept for later use.
func (r *rank) released(t kernels.Tensor) {
	if r.hooks.Released != nil {
		r.hooks.Released(r.id, t)
	}
}

// build makes the parts of the rank and its buffers.
func (r *rank) build(ctx context.Context, set *data.Set) (err error) {
	if r.hooks.Config != nil {
		r.cfg = r.hooks.Config(r.id, r.cfg)
	}
	cfg := &r.cfg
	if r.mesh, err = mesh.New(ctx, r.world, cfg.Plan.Dims(), cfg.Plan.KVReplicas(cfg.Model)); err != nil {
		return err
	}
	if err := r.decorate(set); err != nil {
		return err
	}
	r.meter.Backend, r.meter.Released = r.be, r.released
	r.be = r.meter.For(names.MemOther)
	r.seen = parallel.NewEvidence(r.log, r.be)
	r.queue = comm.NewQueueIn(ctx, r.hooks.Turns)
	r.queue.Submitted = func(l comm.Label) { r.log.Record(trace.Event{Kind: trace.KindIssue, Step: l.Step, Unit: l.Tensor}) }
	r.seqs = cfg.Plan.MaxSequences(cfg.Model, cfg.Sequences)
	r.cutter = parallel.NewCutter(cfg.Plan, cfg.Model, r.dp.Rank())
	for _, part := range cfg.Plan.Parts(cfg.Model, r.mesh.At) {
		c, err := r.newChunk(part)
		if err != nil {
			return err
		}
		r.chunks = append(r.chunks, c)
	}
	r.stage, err = r.newStage()
	return err
}

// decorate applies the run's decorators to this rank's parts.
func (r *rank) decorate(set *data.Set) (err error) {
	r.source = &setSource{set: set}
	if r.opt, err = optim.New(r.cfg.Optimizer); err != nil {
		return err
	}
	if d := r.hooks.Comm; d != nil {
		m := r.mesh
		m.World, m.TP, m.KV, m.PP = d(r.id, names.World, m.World), d(r.id, names.TP, m.TP), d(r.id, names.KV, m.KV), d(r.id, names.PP, m.PP)
		m.DP, m.Overlap = d(r.id, names.DP, m.DP), d(r.id, names.DP, m.Overlap)
	}
	r.dp, r.overlap = r.mesh.DP, r.mesh.Overlap
	if r.hooks.Source != nil {
		r.source = r.hooks.Source(r.id, r.source)
	}
	if r.hooks.Optimizer != nil {
		r.opt = r.hooks.Optimizer(r.id, r.opt)
	}
	return nil
}

// cut is the run's change of how this rank's state is cut, nil for none.
func (r *rank) cut() func([]parallel.Bucket) []parallel.Bucket {
	if r.hooks.Buckets == nil {
		return nil
	}
	return func(s []parallel.Bucket) []parallel.Bucket { return r.hooks.Buckets(r.id, s) }
}

// start makes the initial weights and proves that all replicas have them.
func (r *rank) start(ctx context.Context) error {
	for _, c := range r.chunks {
		err := c.Init(ctx, func(p *model.Param, local shard.Range, dst kernels.Tensor) {
			buf := make([]float32, local.Len())
			r.cfg.Model.Initial(p, local, r.cfg.Seed, buf)
			r.be.Write(dst, buf)
		})
		if err != nil {
			return err
		}
		spans := c.Spans()
		for _, what := range slices.Sorted(maps.Keys(spans)) {
			t := spans[what]
			sp := r.be.Span(t)
			r.log.Record(trace.Event{Kind: trace.KindSpan, Step: -1, What: what, Span: &sp, Count: int64(t.Len())})
		}
	}
	if c := r.hooks.Checkpoints.Resume; c != nil {
		if err := r.resume(ctx, c); err != nil {
			return err
		}
	}
	if err := r.recordState(r.first - 1); err != nil {
		return err
	}
	if err := r.agree(ctx, r.first-1); err != nil {
		return err
	}
	r.seen.Settle()
	return nil
}
