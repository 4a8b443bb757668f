package parallel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// batch is a global batch of n sequences of two tokens that know their number;
// sequence i has i valid tokens.
func batch(n int) (seqs []data.Sequence, ids []int64) {
	for i := range n {
		x := int32(2 * i)
		seqs = append(seqs, data.Sequence{Tokens: []int32{x, x + 1}, Targets: []int32{-x, -x - 1}, Valid: i})
		ids = append(ids, int64(100+i))
	}
	return seqs, ids
}

// shareOf is the interleaving rule.
func shareOf(n, workers int) func(w int) ([]data.Sequence, []int64) {
	seqs, ids := batch(n)
	return func(w int) (s []data.Sequence, id []int64) {
		for _, i := range (shard.Part{Index: w, Size: workers}).Interleave(n) {
			s, id = append(s, seqs[i]), append(id, ids[i])
		}
		return s, id
	}
}

// plans are all plans of 1 to 9 ranks with 1 to 3 micro-batches a worker.
func plans(c model.Config, sequences int) []plan.Plan {
	var out []plan.Plan
	for dp := 1; dp <= 9; dp++ {
		for _, zero := range []int{0, 2} {
			for per := 1; per <= 3; per++ {
				p := plan.Plan{DP: dp, Zero: zero}
				p.MicroBatches = per * p.Workers(c) / dp
				if p.Validate(c, sequences) == nil {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

func TestMicroBatchesCutTheBatch(t *testing.T) {
	for _, d := range []int{1, 4, 8} {
		c := model.Config{Groups: model.Groups{Tensor: 1, Data: d}, Layers: 1}
		for n := 1; n <= 20; n++ {
			for _, p := range plans(c, n) {
				t.Run(fmt.Sprintf("D=%d n=%d %s", d, n, p), func(t *testing.T) { checkItems(t, p, c, n) })
			}
		}
	}
}

func checkItems(t *testing.T, p plan.Plan, c model.Config, n int) {
	workers := p.Workers(c)
	var ids []int64
	largest := 0
	for r := range p.DP {
		micros := cutTwice(p, c, r, shareOf(n, workers))
		if len(micros) != p.MicroBatches {
			t.Fatalf("rank %d has %d micro-batches, want %d", r, len(micros), p.MicroBatches)
		}
		checkMarks(t, p, c, r, n, micros)
		for i := range micros {
			mb := &micros[i]
			largest = max(largest, mb.Batch.Seqs)
			ids = append(ids, mb.IDs...)
			checkMicroBatch(t, mb, workers)
		}
	}
	slices.Sort(ids)
	if _, want := batch(n); !cmp.Equal(ids, want) {
		t.Errorf("the ranks have sequences %v, want %v", ids, want)
	}
	if got := p.MaxSequences(c, n); got != largest {
		t.Errorf("MaxSequences is %d, the largest micro-batch has %d", got, largest)
	}
}

// checkMicroBatch checks that a micro-batch is made of its worker's sequences, and
// that their content goes with the ids.
func checkMicroBatch(t *testing.T, mb *MicroBatch, workers int) {
	t.Helper()
	valid := int64(0)
	var tokens, targets []int32
	for _, id := range mb.IDs {
		i := int32(id - 100)
		if int(i)%workers != mb.Worker {
			t.Errorf("sequence %d is with worker %d of %d", i, mb.Worker, workers)
		}
		tokens, targets, valid = append(tokens, 2*i, 2*i+1), append(targets, -2*i, -2*i-1), valid+int64(i)
	}
	if mb.Batch.Seqs != len(mb.IDs) || mb.Valid != valid || !slices.Equal(mb.Batch.Tokens, tokens) || !slices.Equal(mb.Batch.Targets, targets) {
		t.Errorf("micro-batch of sequences %v holds %+v with %d valid tokens", mb.IDs, mb.Batch, mb.Valid)
	}
}

// checkMarks checks the order of a rank's micro-batches: workers in the plan's
// order, each worker's sequences ascending and cut evenly, ends marked.
func checkMarks(t *testing.T, p plan.Plan, c model.Config, rank, n int, micros []MicroBatch) {
	t.Helper()
	mine := p.RankWorkers(c, rank)
	per := len(micros) / len(mine)
	seqs := map[int][]int64{}
	for i := range micros {
		mb := &micros[i]
		if mb.Micro != i || mb.Index != i/per || mb.Worker != mine[i/per] {
			t.Errorf("place %d has micro-batch %d of worker %d at place %d", i, mb.Micro, mb.Worker, mb.Index)
		}
		if mb.EndsWorker != (i%per == per-1) || mb.EndsStep != (i == len(micros)-1) {
			t.Errorf("micro-batch %d of %d, %d a worker: ends worker %v, step %v", i, len(micros), per, mb.EndsWorker, mb.EndsStep)
		}
		if mb.Present != (mb.Worker < n) {
			t.Errorf("worker %d of a batch of %d is present: %v", mb.Worker, n, mb.Present)
		}
		if first := &micros[i/per*per]; mb.Batch.Seqs > first.Batch.Seqs || mb.Batch.Seqs < first.Batch.Seqs-1 {
			t.Errorf("worker %d has micro-batches of %d and %d sequences", mb.Worker, first.Batch.Seqs, mb.Batch.Seqs)
		}
		seqs[mb.Worker] = append(seqs[mb.Worker], mb.IDs...)
	}
	for w, ids := range seqs {
		if !slices.IsSorted(ids) {
			t.Errorf("worker %d takes sequences %v", w, ids)
		}
	}
}

// cutTwice cuts a step after another one, whose memory it takes: nothing of the
// other is left.
func cutTwice(p plan.Plan, c model.Config, rank int, share func(w int) ([]data.Sequence, []int64)) []MicroBatch {
	k := NewCutter(p, c, rank)
	k.Cut(shareOf(3*c.Groups.Data+1, p.Workers(c)))
	return k.Cut(share)
}
