package parallel

import (
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// Item is one micro-batch of a rank's step, in the order of its backward
// passes.
type Item struct {
	Batch  model.Batch
	IDs    []int64 // ids of its sequences
	Valid  int64   // tokens with a target
	Worker int     // logical worker
	Index  int     // the worker's place among the rank's workers
	Micro  int     // the item's place among the rank's micro-batches
	// Present is false where the worker has no sequence at all in this step.
	Present bool
	// EndsWorker marks the worker's last micro-batch, EndsStep the rank's.
	EndsWorker, EndsStep bool
}

// Cutter cuts a data-parallel rank's share of every step into micro-batches, in
// the memory of the step before.
type Cutter struct {
	workers []int
	items   []Item // per worker equally many
}

// NewCutter makes the cutter of a data-parallel rank under a valid plan.
func NewCutter(p plan.Plan, c model.Config, dpRank int) *Cutter {
	return &Cutter{workers: p.RankWorkers(c, dpRank), items: make([]Item, p.MicroBatches)}
}

// Cut gives the micro-batches of a step, valid until the next call: the rank's
// workers ascending, each worker's sequences by the shard rule over its
// micro-batches. sequences gives a worker's share of the global batch, whose ids
// the items keep.
func (k *Cutter) Cut(sequences func(worker int) ([]data.Sequence, []int64)) []Item {
	per := len(k.items) / len(k.workers)
	for i, w := range k.workers {
		seqs, ids := sequences(w)
		for j := range per {
			r, micro := shard.Part{Index: j, Size: per}.Of(len(seqs)), i*per+j
			it := &k.items[micro]
			*it = Item{Batch: it.Batch, Worker: w, Index: i, Micro: micro, IDs: ids[r.Lo:r.Hi],
				Present: len(seqs) > 0, EndsWorker: j == per-1, EndsStep: micro == len(k.items)-1}
			it.fill(seqs[r.Lo:r.Hi])
		}
	}
	return k.items
}

// fill makes the item's batch of seqs.
func (it *Item) fill(seqs []data.Sequence) {
	b := &it.Batch
	*b = model.Batch{Tokens: b.Tokens[:0], Targets: b.Targets[:0], Seqs: len(seqs)}
	for _, s := range seqs {
		b.Tokens, b.Targets = append(b.Tokens, s.Tokens...), append(b.Targets, s.Targets...)
		it.Valid += int64(s.Valid)
	}
}
