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

// Items cuts a data-parallel rank's share of a step into micro-batches: its
// workers ascending, each worker's sequences by the shard rule over its
// micro-batches. sequences gives a worker's share of the global batch.
func Items(p plan.Plan, c model.Config, dpRank int, sequences func(worker int) ([]data.Sequence, []int64)) []Item {
	workers := p.RankWorkers(c, dpRank)
	per := p.MicroBatches / len(workers)
	items := make([]Item, 0, p.MicroBatches)
	for i, w := range workers {
		seqs, ids := sequences(w)
		for j := range per {
			r := shard.Part{Index: j, Size: per}.Of(len(seqs))
			it := Item{Worker: w, Index: i, Micro: len(items), IDs: ids[r.Lo:r.Hi], Present: len(seqs) > 0, EndsWorker: j == per-1}
			it.Batch.Seqs = r.Len()
			for _, s := range seqs[r.Lo:r.Hi] {
				it.Batch.Tokens = append(it.Batch.Tokens, s.Tokens...)
				it.Batch.Targets = append(it.Batch.Targets, s.Targets...)
				it.Valid += int64(s.Valid)
			}
			items = append(items, it)
		}
	}
	if len(items) > 0 {
		items[len(items)-1].EndsStep = true
	}
	return items
}

// MaxSequences is the largest micro-batch that Items makes of a global batch.
func MaxSequences(p plan.Plan, c model.Config, sequences int) int {
	d := p.Workers(c)
	worker := (sequences + d - 1) / d
	per := p.MicroBatches / len(p.RankWorkers(c, 0))
	return (worker + per - 1) / per
}
