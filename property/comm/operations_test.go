package comm_test

import (
	"context"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// operation is one drawn operation of a group.
type operation struct {
	Op        string
	Count     int
	Bounds    []int // nil is the shard rule
	Reduction kernels.Op
	From, To  int // root or sender, receiver; ranks of the group
	InPlace   bool
	Seed      uint64
}

// drawOperation draws an operation of a group of n ranks.
func drawOperation(t *rapid.T, n int) operation {
	ops := []string{
		names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast,
		names.OpBarrier, names.OpAllReduceInt, names.OpAllGatherBytes,
	}
	if n > 1 {
		ops = append(ops, names.OpSend)
	}
	o := operation{
		Op:        rapid.SampledFrom(ops).Draw(t, "op"),
		Count:     sizes().Draw(t, "count"),
		Reduction: rapid.SampledFrom([]kernels.Op{kernels.Sum, kernels.Max}).Draw(t, "reduction"),
		From:      rapid.IntRange(0, n-1).Draw(t, "from"),
		InPlace:   rapid.Bool().Draw(t, "in place"),
		Seed:      rapid.Uint64().Draw(t, "seed"),
	}
	if n > 1 {
		o.To = (o.From + rapid.IntRange(1, n-1).Draw(t, "distance")) % n
	}
	if rapid.Bool().Draw(t, "cut") {
		o.Bounds = cuts(t, o.Count, n)
	}
	return o
}

// do runs an operation on one rank and compares what comes out.
func (o operation) do(ctx context.Context, r rank) error {
	ranks, me := r.Ranks(), r.Rank()
	own := vector(o.Seed, ranks[me], o.Count)
	switch o.Op {
	case names.OpBarrier:
		return r.Barrier(ctx)
	case names.OpAllReduceInt, names.OpAllGatherBytes:
		return o.doWords(ctx, r)
	case names.OpReduceScatter, names.OpAllGather:
		return o.doParts(ctx, r, own)
	case names.OpSend:
		return o.doMessage(ctx, r, own)
	case names.OpBroadcast:
		x := r.tensor(own)
		if err := r.Broadcast(ctx, x, o.From); err != nil {
			return err
		}
		return r.equal(o.Op, x, vector(o.Seed, ranks[o.From], o.Count))
	}
	x := r.tensor(own)
	if err := r.AllReduce(ctx, x, o.Reduction); err != nil {
		return err
	}
	return r.equal(o.Op, x, reduced(o.Seed, ranks, o.Count, o.Reduction))
}

// doParts runs the operations on a whole vector and its parts.
func (o operation) doParts(ctx context.Context, r rank, own []float32) error {
	bounds := o.Bounds
	if bounds == nil {
		bounds = shard.Bounds(o.Count, r.Size())
	}
	lo, hi := bounds[r.Rank()], bounds[r.Rank()+1]
	whole := r.tensor(own)
	part := whole.Range(lo, hi)
	if !o.InPlace {
		part = r.tensor(own[lo:hi])
	}
	if o.Op == names.OpReduceScatter {
		if err := r.ReduceScatter(ctx, part, whole, o.Bounds, o.Reduction); err != nil {
			return err
		}
		return r.equal(o.Op, part, reduced(o.Seed, r.Ranks(), o.Count, o.Reduction)[lo:hi])
	}
	if err := r.AllGather(ctx, whole, part, o.Bounds); err != nil {
		return err
	}
	var want []float32
	for i, w := range r.Ranks() {
		want = append(want, vector(o.Seed, w, o.Count)[bounds[i]:bounds[i+1]]...)
	}
	return r.equal(o.Op, whole, want)
}

// doMessage is one message; ranks that have no part in it go on.
func (o operation) doMessage(ctx context.Context, r rank, own []float32) error {
	switch r.Rank() {
	case o.From:
		x := r.tensor(own)
		if err := r.Send(ctx, x, o.To); err != nil {
			return err
		}
		return r.equal("sent tensor", x, own)
	case o.To:
		x := r.tensor(make([]float32, o.Count))
		if err := r.Recv(ctx, x, o.From); err != nil {
			return err
		}
		return r.equal("message", x, vector(o.Seed, r.Ranks()[o.From], o.Count))
	}
	return nil
}

// word is an integer input.
func (o operation) word(rank, i int) uint64 {
	return (o.Seed ^ uint64(rank)<<40) * (2*uint64(i) + 0x9e3779b97f4a7c15)
}

// doWords runs the collectives on integers and bytes.
func (o operation) doWords(ctx context.Context, r rank) error {
	if o.Op == names.OpAllGatherBytes {
		all, err := r.AllGatherBytes(ctx, o.bytes(r.Ranks()[r.Rank()]))
		if err != nil {
			return err
		}
		for i, w := range r.Ranks() {
			if !slices.Equal(all[i], o.bytes(w)) {
				return fmt.Errorf("bytes of rank %d are %x, want %x", w, all[i], o.bytes(w))
			}
		}
		return nil
	}
	x, want := make([]uint64, o.Count), make([]uint64, o.Count)
	for i := range x {
		x[i] = o.word(r.Ranks()[r.Rank()], i)
		for _, w := range r.Ranks() {
			if o.Reduction == kernels.Max {
				want[i] = max(want[i], o.word(w, i))
			} else {
				want[i] += o.word(w, i)
			}
		}
	}
	if err := r.AllReduceInt(ctx, x, o.Reduction); err != nil {
		return err
	}
	if !slices.Equal(x, want) {
		return fmt.Errorf("integers are %v, want %v", x, want)
	}
	return nil
}

// bytes is a rank's input to AllGatherBytes.
func (o operation) bytes(rank int) []byte {
	b := make([]byte, (o.Count+3*rank)%23)
	for i := range b {
		b[i] = byte(o.word(rank, i) >> 50)
	}
	return b
}
