package ddp

import (
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// covered is clause 8: the data shards of the ranks are disjoint and cover the
// batch.
func covered(p *contract.Pass, c *compare.Comparison) {
	r, all := c.Test, c.Test.Config.Sequences
	for step := r.First; step < r.Steps; step++ {
		want := batchOf(c.Control, []int{0}, step)
		p.Count(all, want.size())
		for _, group := range r.Groups() {
			got := batchOf(r, group, step)
			p.Count(all, got.size())
			if want.size() == all {
				shards(p, r, group, step, got, want)
				tokens(p, r, group, step, got, want)
			}
		}
	}
}

// piece is who took a sequence.
type piece struct{ rank, worker int }

// batch is what a group of ranks took in one step. The ranks that split a model
// between them take the same sequences; a group has one of each such set.
type batch struct {
	ids   map[int64][]piece // several where a sequence was taken twice; ids of padding are negative
	pads  int
	valid int64 // valid tokens
	// complete says that every rank recorded all its micro-batches, of whatever
	// sequences.
	complete bool
}

// size is the number of sequences, each counted once.
func (b batch) size() int { return len(b.ids) + b.pads }

func batchOf(r *evidence.Run, group []int, step int) batch {
	b := batch{ids: map[int64][]piece{}, complete: true}
	for _, rank := range group {
		micros := 0
		for e := range r.In(step, rank, trace.KindData) {
			micros++
			b.valid += e.Count
			for _, id := range e.IDs {
				b.ids[id] = append(b.ids[id], piece{rank, e.Worker})
			}
		}
		b.complete = b.complete && micros == r.Config.Plan.MicroBatches
	}
	b.pads = len(b.ids[-1])
	delete(b.ids, -1)
	return b
}

func shards(p *contract.Pass, r *evidence.Run, group []int, step int, got, want batch) {
	for _, id := range slices.Sorted(maps.Keys(got.ids)) {
		by := got.ids[id]
		if len(by) > 1 {
			p.At(by[1].rank, step).Report(len(by), 1,
				"sequence %d was taken %d times: by worker %d on rank %d and worker %d on rank %d", id, len(by), by[0].worker, by[0].rank, by[1].worker, by[1].rank)
		}
		for _, x := range by {
			if x.worker < 0 || x.worker >= r.Workers || r.Owner(x.worker) != r.At(x.rank).DP {
				p.At(x.rank, step).Report(nil, nil, "rank %d computed logical worker %d, which the plan does not give it", x.rank, x.worker)
			}
		}
		if ref, ok := want.ids[id]; !ok {
			p.At(by[0].rank, step).Report(nil, nil, "sequence %d is not in the batch of the single worker", id)
		} else if r.Exact() && ref[0].worker != by[0].worker {
			p.At(by[0].rank, step).Report(by[0].worker, ref[0].worker, "sequence %d went to logical worker %d, not %d", id, by[0].worker, ref[0].worker)
		}
	}
	missing(p, group, step, got, want)
}

// missing reports sequences that no rank took. What a rank did not record is a
// matter of evidence, not of data.
func missing(p *contract.Pass, group []int, step int, got, want batch) {
	for _, id := range slices.Sorted(maps.Keys(want.ids)) {
		if _, ok := got.ids[id]; !ok && got.complete {
			p.At(-1, step).Report(nil, nil, "none of ranks %v took sequence %d of the batch", group, id)
		}
	}
}

// tokens checks the number of valid tokens, which weighs the loss: equal on all
// ranks, the sum of what they took, and the single worker's.
func tokens(p *contract.Pass, r *evidence.Run, group []int, step int, got, want batch) {
	p.Expect(len(group))
	for _, rank := range group {
		for e := range r.In(step, rank, trace.KindTokens) {
			p.Saw(1)
			if got.size() == r.Config.Sequences && e.Count != got.valid || e.Count != want.valid {
				p.At(rank, step).Report(e.Count, want.valid,
					"rank %d counts %d valid tokens in the global batch; the ranks took %d, the single worker %d", rank, e.Count, got.valid, want.valid)
			}
		}
	}
}
