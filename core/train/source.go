package train

import (
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// setSource is the plain source: the set, interleaved over logical workers.
type setSource struct {
	set   *data.Set
	order [][]int // by worker: positions in a step
	step  int     // whose global batch it has dealt out
	seqs  [][]data.Sequence
	ids   [][]int64
}

// Sequences implements Source.
func (s *setSource) Sequences(step, worker, workers int) ([]data.Sequence, []int64) {
	if workers != len(s.order) {
		s.order, s.step = nil, step-1
		for w := range workers {
			s.order = append(s.order, shard.Part{Index: w, Size: workers}.Interleave(s.set.Options().PerStep))
		}
		s.seqs, s.ids = make([][]data.Sequence, workers), make([][]int64, workers)
	}
	if step != s.step {
		s.deal(step)
	}
	return s.seqs[worker], s.ids[worker]
}

// deal gives every worker its sequences of a step, in one new slice for all.
func (s *setSource) deal(step int) {
	all, ids := s.set.Step(step), s.set.IDs(step)
	seqs, out := make([]data.Sequence, 0, len(all)), make([]int64, 0, len(all))
	s.step = step
	for w, order := range s.order {
		first := len(seqs)
		for _, i := range order {
			seqs, out = append(seqs, all[i]), append(out, int64(ids[i]))
		}
		n := len(seqs)
		s.seqs[w], s.ids[w] = seqs[first:n:n], out[first:n:n]
	}
}
