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

func TestItemsCutTheBatch(t *testing.T) {
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
		items := cutTwice(p, c, r, shareOf(n, workers))
		if len(items) != p.MicroBatches {
			t.Fatalf("rank %d has %d micro-batches, want %d", r, len(items), p.MicroBatches)
		}
		checkMarks(t, p, c, r, n, items)
		for i := range items {
			it := &items[i]
			largest = max(largest, it.Batch.Seqs)
			ids = append(ids, it.IDs...)
			checkItem(t, it, workers)
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

// checkItem checks that a micro-batch is made of its worker's sequences, and
// that their content goes with the ids.
func checkItem(t *testing.T, it *Item, workers int) {
	t.Helper()
	valid := int64(0)
	var tokens, targets []int32
	for _, id := range it.IDs {
		i := int32(id - 100)
		if int(i)%workers != it.Worker {
			t.Errorf("sequence %d is with worker %d of %d", i, it.Worker, workers)
		}
		tokens, targets, valid = append(tokens, 2*i, 2*i+1), append(targets, -2*i, -2*i-1), valid+int64(i)
	}
	if it.Batch.Seqs != len(it.IDs) || it.Valid != valid || !slices.Equal(it.Batch.Tokens, tokens) || !slices.Equal(it.Batch.Targets, targets) {
		t.Errorf("micro-batch of sequences %v holds %+v with %d valid tokens", it.IDs, it.Batch, it.Valid)
	}
}

// checkMarks checks the order of a rank's micro-batches: workers in the plan's
// order, each worker's sequences ascending and cut evenly, ends marked.
func checkMarks(t *testing.T, p plan.Plan, c model.Config, rank, n int, items []Item) {
	t.Helper()
	mine := p.RankWorkers(c, rank)
	per := len(items) / len(mine)
	seqs := map[int][]int64{}
	for i := range items {
		it := &items[i]
		if it.Micro != i || it.Index != i/per || it.Worker != mine[i/per] {
			t.Errorf("item %d is micro-batch %d of worker %d at place %d", i, it.Micro, it.Worker, it.Index)
		}
		if it.EndsWorker != (i%per == per-1) || it.EndsStep != (i == len(items)-1) {
			t.Errorf("item %d of %d, %d a worker: ends worker %v, step %v", i, len(items), per, it.EndsWorker, it.EndsStep)
		}
		if it.Present != (it.Worker < n) {
			t.Errorf("worker %d of a batch of %d is present: %v", it.Worker, n, it.Present)
		}
		if first := &items[i/per*per]; it.Batch.Seqs > first.Batch.Seqs || it.Batch.Seqs < first.Batch.Seqs-1 {
			t.Errorf("worker %d has micro-batches of %d and %d sequences", it.Worker, first.Batch.Seqs, it.Batch.Seqs)
		}
		seqs[it.Worker] = append(seqs[it.Worker], it.IDs...)
	}
	for w, ids := range seqs {
		if !slices.IsSorted(ids) {
			t.Errorf("worker %d takes sequences %v", w, ids)
		}
	}
}

// cutTwice cuts a step after another one, whose memory it takes: nothing of the
// other is left.
func cutTwice(p plan.Plan, c model.Config, rank int, share func(w int) ([]data.Sequence, []int64)) []Item {
	k := NewCutter(p, c, rank)
	k.Cut(shareOf(3*c.Groups.Data+1, p.Workers(c)))
	return k.Cut(share)
}
