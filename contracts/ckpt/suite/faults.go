package suite

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// starting is an updater that does something before its first step.
type starting struct {
	parallel.Updater
	start func() // nil afterwards
}

func (s *starting) Begin(step int) {
	if s.start != nil {
		s.start()
		s.start = nil
	}
	s.Updater.Begin(step)
}

// dropMoments clears the moments before the first step, after they were loaded,
// on all ranks.
func dropMoments() fault.Fault {
	return fault.OnUpdater(fault.Every, func(be kernels.Backend, u parallel.Updater) parallel.Updater {
		return &starting{u, func() {
			for _, piece := range u.Pieces() {
				for _, m := range piece.M {
					be.Fill(m, 0)
				}
			}
		}}
	})
}

// initialHead leaves a rank of the last stage, which has no embedding, with the
// initial weights of its tied head when the first step begins.
func initialHead(rank int) fault.Fault {
	return fault.OnUpdater(rank, func(be kernels.Backend, u parallel.Updater) parallel.Updater {
		h := &initial{Updater: u, be: be}
		return &starting{h, h.restore}
	})
}

// initial is an updater that remembers its initial weights of a tied head.
type initial struct {
	parallel.Updater
	be   kernels.Backend
	head [][]float32
}

func (h *initial) Init(ctx context.Context, fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	if err := h.Updater.Init(ctx, fill); err != nil {
		return err
	}
	_, weights := h.Tied(true)
	for _, w := range weights {
		x := make([]float32, w.Len())
		if err := h.be.Read(x, w); err != nil {
			return err
		}
		h.head = append(h.head, x)
	}
	return nil
}

func (h *initial) restore() {
	_, weights := h.Tied(true)
	for i, w := range weights {
		h.be.Write(w, h.head[i])
	}
}

// shiftData gives every rank the sequences of another step.
func shiftData(by int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		s.Step += by
		return s.Do()
	})
}
