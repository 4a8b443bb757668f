package parallel

import (
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// MicroBatch is one micro-batch of a rank's step, in the order of its backward
// passes.
type MicroBatch struct {
	Batch  model.Batch
	IDs    []int64 // ids of its sequences
	Valid  int64   // tokens with a target
	Worker int     // logical worker
	Index  int     // the worker's place among the rank's workers
	Micro  int     // its place among the rank's micro-batches
	// Present is false where the worker has no sequence at all in this step.
	Present bool
	// EndsWorker marks the worker's last micro-batch, EndsStep the rank's.
	EndsWorker, EndsStep bool
}

// Digest is that of the tokens and targets, as integers (package trace).
func (mb *MicroBatch) Digest() (d kernels.Digest) {
	add := func(tensor string, x []int32) {
		id := kernels.TensorID(tensor)
		for i, v := range x {
			a, b := kernels.Mix(id, uint64(i), uint64(uint32(v)))
			d.A, d.B = d.A+a, d.B+b
		}
	}
	add(trace.Tokens, mb.Batch.Tokens)
	add(trace.Targets, mb.Batch.Targets)
	return d
}

// Cutter cuts a data-parallel rank's share of every step into micro-batches, in
// the memory of the step before.
type Cutter struct {
	workers []int
	micros  []MicroBatch // per worker equally many
}

// NewCutter makes the cutter of a data-parallel rank under a valid plan.
func NewCutter(p plan.Plan, c model.Config, dpRank int) *Cutter {
	return &Cutter{workers: p.RankWorkers(c, dpRank), micros: make([]MicroBatch, p.MicroBatches)}
}

// Cut gives the micro-batches of a step, valid until the next call: the rank's
// workers ascending, each worker's sequences by the shard rule over its
// micro-batches. sequences gives a worker's share of the global batch, whose ids
// the micro-batches keep.
func (k *Cutter) Cut(sequences func(worker int) ([]data.Sequence, []int64)) []MicroBatch {
	per := len(k.micros) / len(k.workers)
	for i, w := range k.workers {
		seqs, ids := sequences(w)
		for j := range per {
			r, micro := shard.Part{Index: j, Size: per}.Of(len(seqs)), i*per+j
			mb := &k.micros[micro]
			*mb = MicroBatch{Batch: mb.Batch, Worker: w, Index: i, Micro: micro, IDs: ids[r.Lo:r.Hi],
				Present: len(seqs) > 0, EndsWorker: j == per-1, EndsStep: micro == len(k.micros)-1}
			mb.fill(seqs[r.Lo:r.Hi])
		}
	}
	return k.micros
}

// fill makes the batch of seqs.
func (mb *MicroBatch) fill(seqs []data.Sequence) {
	b := &mb.Batch
	*b = model.Batch{Tokens: b.Tokens[:0], Targets: b.Targets[:0], Seqs: len(seqs)}
	for _, s := range seqs {
		b.Tokens, b.Targets = append(b.Tokens, s.Tokens...), append(b.Targets, s.Targets...)
		mb.Valid += int64(s.Valid)
	}
}
