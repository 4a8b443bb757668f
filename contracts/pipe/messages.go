package pipe

import (
	"fmt"
	"iter"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// crossing is one message: what crosses a boundary of one pipeline. Boundary v
// lies behind virtual stage v.
type crossing struct {
	pipeline int
	evidence.MicroBatch
	boundary uint64
	what     string
}

// moment is when in its step a message crosses: those of a forward pass from the
// first boundary on, those of a backward pass from the last.
func (k crossing) moment() (contract.Phase, int) {
	if k.what == trace.Backward {
		return contract.Backward, -int(k.boundary)
	}
	return contract.Forward, int(k.boundary)
}

// message is both sides of a crossing; a side is nil where it was not recorded.
type message struct{ sent, received *trace.Event }

// messages lists the crossings that the plan implies, each with what was
// recorded of it.
func messages(r *evidence.Run) iter.Seq2[crossing, message] {
	found := map[crossing]message{}
	all := r.Along(names.PP)
	for i, ranks := range all {
		for _, rank := range ranks {
			for e := range r.Events(rank, trace.KindMessage) {
				k := crossing{i, evidence.MicroBatch{Step: e.Step, Micro: e.Micro}, e.Seq, e.What}
				m := found[k]
				if e.Op == names.OpSend {
					m.sent = &e
				} else {
					m.received = &e
				}
				found[k] = m
			}
		}
	}
	return func(yield func(crossing, message) bool) {
		for i := range all {
			for _, b := range r.MicroBatches() {
				for boundary := range uint64(r.Config.Plan.PP*r.Config.Plan.Virtual - 1) {
					for _, what := range []string{trace.Forward, trace.Backward} {
						if k := (crossing{i, b, boundary, what}); !yield(k, found[k]) {
							return
						}
					}
				}
			}
		}
	}
}

// shaped is clause 2.
func shaped(p *contract.Pass, r *evidence.Run) {
	hidden, all := int64(r.Config.Model.Hidden), r.Along(names.PP)
	for k, both := range messages(r) {
		rows := int64(sequences(r, r.At(all[k.pipeline][0]).DP, k.Micro) * r.Config.Model.SeqLen)
		for _, e := range []*trace.Event{both.sent, both.received} {
			if p.Found(e != nil) && (e.Lo != rows || e.Hi != hidden || e.Count != rows*hidden) {
				p.At(e.Rank, k.Step).In(k.moment()).Report(fmt.Sprintf("%dx%d, %d elements", e.Lo, e.Hi, e.Count), fmt.Sprintf("%dx%d", rows, hidden),
					"%s of the %s message of micro-batch %d at boundary %d on rank %d has not the shape of the micro-batch",
					e.Op, k.what, k.Micro, k.boundary, e.Rank)
			}
		}
	}
}

// sequences is the size of a data-parallel rank's micro-batch by the plan: its
// worker's share of the global batch, cut by the shard rule.
func sequences(r *evidence.Run, dp, micro int) int {
	worker, place, _ := r.WorkerOf(dp, micro)
	share := shard.Part{Index: worker, Size: r.Workers}.Interleave(r.Config.Sequences)
	return shard.Part{Index: place, Size: r.PerWorker()}.Of(len(share)).Len()
}

// delivered is clause 3.
func delivered(p *contract.Pass, r *evidence.Run) {
	for k, both := range messages(r) {
		got, want := both.received, both.sent
		if !p.Found(want != nil && got != nil && want.Digest != nil && got.Digest != nil) {
			continue
		}
		if *got.Digest != *want.Digest {
			p.At(got.Rank, k.Step).In(k.moment()).Report(got.Digest, want.Digest,
				"rank %d received another %s message of micro-batch %d at boundary %d than rank %d sent",
				got.Rank, k.what, k.Micro, k.boundary, want.Rank)
		}
	}
}

// accumulated is clause 4.
func accumulated(_ *contract.Pass, c *compare.Comparison) {
	c.Gradients(nil)
	c.States(nil)
	c.Scalars(c.LastStage, trace.Loss)
	c.Scalars(nil, trace.Norm, trace.Coef, trace.LR, trace.Counter)
}
