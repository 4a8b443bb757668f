package othertrainer

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// This file is a trainer of one's own, with data parallelism of its own, on the
// communicator and the backend beside it. It shares nothing with the trainer of
// package core/train but the form of its evidence: events, and a specification
// in the header that says how many ranks, sequences and steps there are and
// which tensors exist. Every weight is drawn to the mean of what the sequences
// hold for it: loss (w - x)^2 / 2, gradient w - x. TestTrainer judges it.

// Spec is what the trainer says of itself: names and shapes of the tensors, two
// logical workers, five sequences a step, plain SGD without clipping.
func Spec(dp int) (spec.Config, error) {
	c := spec.Config{
		Model: model.Config{Name: "means", Vocab: 3, Hidden: 2, Layers: 2, Heads: 1, KVHeads: 1, HeadDim: 2, Intermediate: 2, SeqLen: 1,
			Groups: model.Groups{Tensor: 1, Data: 2}},
		Plan: plan.Plan{DP: dp}, Optimizer: optim.Config{Name: "sgd", LR: 0.1}, Sequences: 5, Steps: 3, Text: "means",
		Recording: spec.Recording{Digests: true, Workers: true},
	}
	return c, c.Validate()
}

// Bug breaks a rank of the trainer; nil breaks nothing.
type Bug func(rank, step int, gradient []float32)

// Train runs the trainer on dp goroutine ranks and returns its history.
func Train(ctx context.Context, dp int, bug Bug) (*trace.History, error) {
	spec, err := Spec(dp)
	if err != nil {
		return nil, err
	}
	bes := make([]*Backend, dp)
	for i := range bes {
		bes[i] = NewBackend()
	}
	ends := NewWorld(dp, func(r int) kernels.Backend { return bes[r] },
		func(be kernels.Backend, dst, src []kernels.Tensor, op kernels.Op) { be.Reduce(dst, src, op) })
	logs, errs := make([]*trace.Log, dp), make([]error, dp)
	var all sync.WaitGroup
	for i := range ends {
		logs[i] = &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, Rank: i, World: dp,
			Plan: spec.Plan.String(), Model: spec.Model.Name, Backend: bes[i].Name(), Spec: spec.Recorded()}}
		all.Go(func() {
			r := &trainer{spec: spec, Communicator: ends[i], be: bes[i], log: logs[i], bug: bug, layout: model.NewLayout(spec.Model, model.Whole(spec.Model))}
			errs[i] = r.run(ctx)
			r.Close()
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return trace.Merge(logs)
}

// trainer is one rank.
type trainer struct {
	comm.Communicator
	spec   spec.Config
	layout model.Layout // which tensors there are, and where they lie
	be     *Backend
	log    *trace.Log
	bug    Bug
	seq    uint64 // collectives so far

	weights, momentum kernels.Tensor
	sums              []kernels.Tensor // of the rank's workers
	loss              kernels.Tensor
}

func (r *trainer) run(ctx context.Context) error {
	n := r.layout.Owned
	owned := r.spec.Plan.RankWorkers(r.spec.Model, r.Rank())
	r.weights, r.momentum, r.loss = r.alloc(trace.Weight, n), r.alloc(trace.Momentum, n), r.alloc("", 1)
	for range len(owned) {
		r.sums = append(r.sums, r.alloc(trace.Grad, n))
	}
	initial := make([]float32, n)
	for i := range initial {
		initial[i] = float32(i%7) / 8
	}
	r.be.Write(r.weights, initial)
	for u := range r.layout.Units { // replicas start equal because rank 0 says so
		x := r.weights.Range(r.layout.Units[u].Lo, r.layout.Units[u].Hi)
		if err := r.Broadcast(ctx, x, 0); err != nil {
			return err
		}
		r.recordOp(-1, names.OpBroadcast, u)
	}
	r.recordState(-1)
	for step := range r.spec.Steps {
		if err := r.step(ctx, step, owned); err != nil {
			return err
		}
	}
	r.log.Record(trace.Event{Kind: trace.KindEnd, Step: r.spec.Steps - 1})
	return nil
}

// alloc makes a buffer and tells where it lies: replicas that share memory would
// be equal by accident.
func (r *trainer) alloc(what string, n int) kernels.Tensor {
	b, err := r.be.Alloc(n)
	if err != nil {
		panic(err)
	}
	t := kernels.Flat(b)
	if what != "" {
		span := r.be.Span(t)
		r.log.Record(trace.Event{Kind: trace.KindSpan, Step: -1, What: what, Span: &span})
	}
	return t
}

// step is one optimizer step: the workers' gradients, their sum over ranks unit
// by unit, and the update.
func (r *trainer) step(ctx context.Context, step int, owned []int) error {
	losses := make([]kernels.Tensor, len(owned))
	for i, worker := range owned {
		losses[i] = r.alloc("", 1)
		r.gradient(step, worker, r.sums[i], losses[i])
	}
	acc := r.sums[0]
	r.be.Reduce([]kernels.Tensor{acc}, r.sums, kernels.Sum) // the tree over the rank's own workers
	r.be.Reduce([]kernels.Tensor{r.loss}, losses, kernels.Sum)
	if r.bug != nil {
		r.bug(r.Rank(), step, ref.Data[float32](acc))
	}
	if err := r.reduce(ctx, step, acc); err != nil {
		return err
	}
	var squares kernels.SquareSum
	r.be.SumSquares(&squares, acc)
	norm := optim.Norm(&squares)
	r.recordDigests(step, trace.Grad, acc, 0)
	r.be.SGD(r.weights, r.momentum, acc, kernels.SGDParams{LR: r.spec.Optimizer.LR, Momentum: r.spec.Optimizer.Momentum, Coef: 1})
	loss := ref.Data[float32](r.loss)[0]
	r.scalar(step, trace.Loss, float64(loss), kernels.Bits(loss))
	r.scalar(step, trace.Norm, norm, 0)
	r.scalar(step, trace.Coef, 1, 0)
	r.scalar(step, trace.LR, r.spec.Optimizer.LR, 0)
	r.scalar(step, trace.Counter, float64(step+1), 0)
	r.recordState(step)
	return nil
}

// value is what a sequence holds for weight i.
func value(sequence int64, i int) float32 {
	return float32((30*sequence+7*int64(i))%50) / 10
}

// gradient sums over the sequences of a logical worker: its share of the batch
// is worker, worker+2, ...
func (r *trainer) gradient(step, worker int, sum, loss kernels.Tensor) {
	w, g, l := ref.Data[float32](r.weights), ref.Data[float32](sum), ref.Data[float32](loss)
	clear(g)
	ev := trace.Event{Kind: trace.KindData, Step: step, Worker: worker, Micro: worker}
	for s := worker; s < r.spec.Sequences; s += r.spec.Plan.Workers(r.spec.Model) {
		id := int64(step*r.spec.Sequences + s)
		ev.IDs = append(ev.IDs, id)
		ev.Count++ // one valid token each
		for i := range g {
			d := w[i] - value(id, i)
			g[i] += d
			l[0] += float32(d*d) / 2
		}
	}
	r.log.Record(ev)
	for u := len(r.layout.Units) - 1; u >= 0; u-- {
		r.log.Record(trace.Event{Kind: trace.KindLeaf, Step: step, Unit: r.layout.Units[u].Name, Worker: worker})
	}
	r.recordDigests(step, trace.WorkerGrad, sum, worker)
}

// reduce adds the ranks' sums unit by unit, the last one first, each as soon as
// the backward pass has finished with it, and agrees on loss and tokens.
func (r *trainer) reduce(ctx context.Context, step int, acc kernels.Tensor) error {
	for u := len(r.layout.Units) - 1; u >= 0; u-- {
		unit := &r.layout.Units[u]
		r.log.Record(trace.Event{Kind: trace.KindIssue, Step: step, Unit: unit.Name})
		if err := r.AllReduce(ctx, acc.Range(unit.Lo, unit.Hi), kernels.Sum); err != nil {
			return err
		}
		r.recordOp(step, names.OpAllReduce, u)
		r.log.Record(trace.Event{Kind: trace.KindPhase, Step: step, What: trace.Backward, Unit: unit.Name})
	}
	if err := r.AllReduce(ctx, r.loss, kernels.Sum); err != nil {
		return err
	}
	tokens := []uint64{0}
	for _, w := range r.spec.Plan.RankWorkers(r.spec.Model, r.Rank()) {
		tokens[0] += uint64((r.spec.Sequences - w + 1) / 2)
	}
	if err := r.AllReduceInt(ctx, tokens, kernels.Sum); err != nil {
		return err
	}
	r.event(step, names.OpAllReduce, trace.Loss, 1)
	r.event(step, names.OpAllReduceInt, "tokens", 1)
	r.log.Record(trace.Event{Kind: trace.KindTokens, Step: step, Count: int64(tokens[0])})
	return nil
}

// recordOp records a collective on unit u.
func (r *trainer) recordOp(step int, op string, u int) {
	unit := &r.layout.Units[u]
	r.event(step, op, unit.Name, int64(unit.Len()))
}

func (r *trainer) event(step int, op, unit string, count int64) {
	r.log.Record(trace.Event{Kind: trace.KindComm, Step: step, Op: op, Group: names.DP, Unit: unit, Ranks: r.Ranks(), Seq: r.seq, Count: count})
	r.seq++
}

func (r *trainer) scalar(step int, what string, v float64, bits uint32) {
	r.log.Record(trace.Event{Kind: trace.KindScalar, Step: step, What: what, Value: trace.Float(v), Bits: bits, Once: r.Rank() == 0})
}

func (r *trainer) recordState(step int) {
	r.recordDigests(step, trace.Weight, r.weights, 0)
	r.recordDigests(step, trace.Momentum, r.momentum, 0)
}

// recordDigests records one digest per tensor. Rank 0's copy is the one that
// counts; a worker's gradient exists once anyway.
func (r *trainer) recordDigests(step int, what string, x kernels.Tensor, worker int) {
	for i := range r.layout.Params {
		p := &r.layout.Params[i]
		var d kernels.Digest
		r.be.Hash(&d, x.Range(p.Off, p.Off+p.Len()), kernels.Place{ID: p.ID, RowStride: uint64(p.Len())})
		r.log.Record(trace.Event{Kind: trace.KindDigest, Step: step, What: what, Tensor: p.Name, Unit: r.layout.Units[p.Unit].Name,
			Worker: worker, Count: int64(p.Len()), Digest: &d, Once: r.Rank() == 0 || what == trace.WorkerGrad})
	}
}
