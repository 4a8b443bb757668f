package pipe

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// crossing is one message: what crosses a boundary of one pipeline. Boundary v
// lies behind virtual stage v.
type crossing struct {
	pipeline, step, micro int
	boundary              uint64
	what                  string
}

// message is both sides of a crossing; a side is nil where it was not recorded.
type message struct{ sent, received *trace.Event }

// messages lists the crossings that the plan implies, each with what was
// recorded of it.
func messages(r *evidence.Run) func(func(crossing, message) bool) {
	found := map[crossing]message{}
	all := pipelines(r)
	for i, ranks := range all {
		for _, rank := range ranks {
			for e := range r.Events(rank, trace.KindMessage) {
				k := crossing{i, e.Step, e.Micro, e.Seq, e.What}
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
	plan := r.Config.Plan
	return func(yield func(crossing, message) bool) {
		for i := range all {
			for at := range r.Config.Steps * plan.MicroBatches * (plan.PP*plan.Virtual - 1) {
				boundary, at := at%(plan.PP*plan.Virtual-1), at/(plan.PP*plan.Virtual-1)
				for _, what := range []string{trace.Forward, trace.Backward} {
					k := crossing{i, at / plan.MicroBatches, at % plan.MicroBatches, uint64(boundary), what}
					if !yield(k, found[k]) {
						return
					}
				}
			}
		}
	}
}

// shaped is clause 2.
func shaped(p *contract.Pass) {
	r, ok := subject.Read(p)
	if !ok {
		return
	}
	m := r.Config.Model
	for k, both := range messages(r) {
		dp := r.At(pipelines(r)[k.pipeline][0]).DP
		rows := int64(sequences(r, dp, k.micro) * m.SeqLen)
		p.Expect(2)
		for _, e := range []*trace.Event{both.sent, both.received} {
			if e == nil {
				continue
			}
			p.Saw(1)
			if e.Lo != rows || e.Hi != int64(m.Hidden) || e.Count != rows*int64(m.Hidden) {
				p.At(e.Rank, k.step).Report(fmt.Sprintf("%dx%d, %d elements", e.Lo, e.Hi, e.Count), fmt.Sprintf("%dx%d", rows, m.Hidden),
					"%s of the %s message of micro-batch %d at boundary %d on rank %d has not the shape of the micro-batch", e.Op, k.what, k.micro, k.boundary, e.Rank)
			}
		}
	}
}

// sequences is the size of a data-parallel rank's micro-batch by the plan: its
// worker's share of the global batch, cut by the shard rule.
func sequences(r *evidence.Run, dp, micro int) int {
	workers := r.Config.Plan.RankWorkers(r.Config.Model, dp)
	per := r.Config.Plan.MicroBatches / len(workers)
	share := shard.Part{Index: workers[micro/per], Size: r.Workers}.Interleave(r.Config.Sequences)
	return shard.Part{Index: micro % per, Size: per}.Of(len(share)).Len()
}

// delivered is clause 3.
func delivered(p *contract.Pass) {
	r, ok := subject.Read(p)
	if !ok {
		return
	}
	for k, both := range messages(r) {
		p.Expect(1)
		if both.sent == nil || both.received == nil || both.sent.Digest == nil || both.received.Digest == nil {
			continue
		}
		p.Saw(1)
		if got, want := both.received, both.sent; *got.Digest != *want.Digest || got.Digest.NonFinite > 0 {
			p.At(got.Rank, k.step).Report(got.Digest.String(), want.Digest.String(),
				"rank %d received another %s message of micro-batch %d at boundary %d than rank %d sent", got.Rank, k.what, k.micro, k.boundary, want.Rank)
		}
	}
}

// accumulated is clause 4.
func accumulated(p *contract.Pass) {
	c, ok := subject.Part(p)
	if !ok {
		return
	}
	c.Gradients(nil)
	c.States(nil)
	c.Scalars(c.LastStage, trace.Loss)
	c.Scalars(nil, trace.Norm, trace.Coef, trace.LR, trace.Counter)
}
