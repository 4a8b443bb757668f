package pipe

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/schedule"
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
	for _, ranks := range r.Along(names.PP) {
		for _, rank := range ranks {
			carriers(p, r, ranks, rank)
		}
	}
	r.Sizes(p, names.PP)
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

// carried is one operation that carries a message between stages.
type carried struct {
	step, peer int
	op, action string
	count      int64
}

// carriers holds the operations between stages against the messages that they carry:
// to and from the same stage, as many elements. In a step of which all is told, no
// operation is without a message and no message without an operation.
func carriers(p *contract.Pass, r *evidence.Run, ranks []int, rank int) {
	due, extra := map[carried]int{}, map[carried]trace.Event{}
	for e := range r.Events(rank, trace.KindMessage) {
		if e.Peer >= 0 && e.Peer < len(ranks) {
			due[carried{e.Step, ranks[e.Peer], e.Op, transfer(e, r.Config.Plan.PP).Kind.String(), e.Count}]++
		}
	}
	if len(due) == 0 {
		return // the messages were not recorded
	}
	for e := range r.Events(rank, trace.KindComm) {
		if e.Group != names.PP || !between(e) || e.Text != "" {
			continue
		}
		k := carried{e.Step, e.Peer, e.Op, e.Unit, e.Count}
		if due[k]--; due[k] < 0 {
			extra[k] = e
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(due), carried.compare) {
		at := p.At(rank, k.step).In(k.moment())
		switch {
		case due[k] < 0 && r.Told(rank, k.step, trace.KindMessage):
			at.Report(extra[k].Count, nil, "rank %d carried %s of %d elements to or from rank %d by %s %d times more than it has messages", rank, k.action, k.count, k.peer, k.op, -due[k])
		case due[k] > 0 && r.Told(rank, k.step, trace.KindComm):
			at.Report(nil, k.count, "rank %d has %d messages more (%s of %d elements, rank %d) than operations that carry them", rank, due[k], k.action, k.count, k.peer)
		}
	}
}

// between reports whether an operation carries what stages hand on: not what they
// exchange of a tied embedding or of a checkpoint.
func between(e trace.Event) bool {
	return e.Unit != names.TiedGradient && e.Unit != names.TiedWeight && e.Unit != names.Checkpoint && (e.Op == names.OpSend || e.Op == names.OpRecv)
}

func (k carried) compare(o carried) int {
	return cmp.Or(cmp.Compare(k.step, o.step), cmp.Compare(k.op, o.op), cmp.Compare(k.action, o.action), cmp.Compare(k.peer, o.peer), cmp.Compare(k.count, o.count))
}

func (k carried) moment() (contract.Phase, int) {
	if k.action == schedule.SendBackward.String() || k.action == schedule.RecvBackward.String() {
		return contract.Backward, 0
	}
	return contract.Forward, 0
}

// accumulated is clause 4.
func accumulated(_ *contract.Pass, c *compare.Comparison) {
	c.Gradients(nil)
	c.States(nil)
	c.Scalars(c.LastStage, trace.Loss)
	c.Scalars(nil, trace.Norm, trace.Coef, trace.LR, trace.Counter)
}
