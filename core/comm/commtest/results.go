package commtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// drillSeed makes the inputs of the suite.
const drillSeed = 0x10c4

// checkResults drills every operation and judges every record.
func checkResults(r Reporter, s Suite) {
	for _, size := range sizes() {
		comms, err := s.Open(size)
		if err != nil {
			r.Errorf("open a world of %d: %v", size, err)
			return
		}
		var mu sync.Mutex
		var records []drill.Record
		errs := s.each(comms, func(ctx context.Context, k rank) error {
			got := comm.Drill(ctx, []comm.Communicator{k.Communicator}, s.Backend, drillSeed, s.Level)
			mu.Lock()
			defer mu.Unlock()
			records = append(records, got...)
			if want := drill.Plan(size, k.Rank(), drillSeed, s.Level); len(got) != len(want) {
				return fmt.Errorf("%d operations were done, want %d", len(got), len(want))
			}
			return k.Close()
		})
		for i, err := range errs {
			if err != nil {
				r.Errorf("drill of %d ranks, rank %d: %v", size, i, err)
			}
		}
		mu.Lock()
		s.judge(r, records)
		if s.judged != nil {
			s.judged.Add(int64(len(records)))
		}
		mu.Unlock()
	}
}

// judge reports the first wrong record of each operation.
func (s Suite) judge(r Reporter, records []drill.Record) {
	reported := map[string]bool{}
	agreed := map[uint64]drill.Record{} // by seed
	for _, rec := range records {
		err := drill.Verify(rec)
		if err != nil && !s.Canonical && rec.Input == drill.Order && rec.Err == "" {
			err = nil
			if first, ok := agreed[rec.Seed]; ok && rec.Op == names.OpAllReduce && first.Digest != rec.Digest {
				err = fmt.Errorf("digest %v, but %v on rank %d", rec.Digest, first.Digest, first.Rank)
			}
			agreed[rec.Seed] = rec
		}
		if err != nil && !reported[rec.Op] {
			reported[rec.Op] = true
			r.Errorf("rank %d, %s of %d elements (%s, %s inputs, peer %d, bounds %v, in place %t) in group %v: %v",
				rec.Rank, rec.Op, rec.Count, rec.Reduction, rec.Input, rec.Peer, rec.Bounds, rec.InPlace, rec.Group, err)
		}
	}
}

// checkStream passes many numbered messages between all pairs, and reduces in
// between: order is kept, and no buffer's earlier contents come back.
func checkStream(r Reporter, s Suite) {
	const messages = 32
	s.mustHold(r, 3, func(ctx context.Context, k rank) error {
		for i := range messages {
			for from := range k.Size() {
				for to := range k.Size() {
					if err := streamOne(ctx, k, from, to, float32(100*from+10*to+1000*i)); err != nil {
						return fmt.Errorf("message %d from %d to %d: %w", i, from, to, err)
					}
				}
			}
			x := k.vector(float32(i), float32(k.Rank()))
			if err := k.AllReduce(ctx, x, kernels.Sum); err != nil {
				return err
			}
			if err := k.expect(x, float32(3*i), 3); err != nil {
				return fmt.Errorf("all-reduce %d: %w", i, err)
			}
		}
		return k.Close()
	})
}

// streamOne is this rank's side of one message of one element.
func streamOne(ctx context.Context, k rank, from, to int, v float32) error {
	switch {
	case from == to:
		return nil
	case k.Rank() == from:
		return k.Send(ctx, k.vector(v), to)
	case k.Rank() == to:
		x := k.vector(-1)
		if err := k.Recv(ctx, x, from); err != nil {
			return err
		}
		return k.expect(x, v)
	}
	return nil
}

// checkSources demands that what an operation only reads is left alone.
func checkSources(r Reporter, s Suite) {
	s.mustHold(r, 4, func(ctx context.Context, k rank) error {
		me := float32(k.Rank())
		part := k.vector(me, me+0.5)
		whole := k.vector(make([]float32, 8)...)
		if err := k.AllGather(ctx, whole, part, nil); err != nil {
			return err
		}
		if err := k.expect(part, me, me+0.5); err != nil {
			return fmt.Errorf("source of all-gather: %w", err)
		}
		if err := k.Broadcast(ctx, part, 2); err != nil {
			return err
		}
		if err := k.expect(part, 2, 2.5); err != nil {
			return fmt.Errorf("broadcast: %w", err)
		}
		src := k.vector(me, me, me, me, me)
		dst := k.vector(make([]float32, []int{2, 1, 1, 1}[k.Rank()])...)
		if err := k.ReduceScatter(ctx, dst, src, nil, kernels.Sum); err != nil {
			return err
		}
		own := k.Rank() + min(k.Rank(), 1)
		if err := k.expect(src.Range(own, own+1), me); err != nil {
			return fmt.Errorf("own part of the source of reduce-scatter: %w", err)
		}
		return bytesAreCopies(ctx, k)
	})
}

// bytesAreCopies changes what a rank gave to AllGatherBytes, and what it got:
// the other ranks must not see it.
func bytesAreCopies(ctx context.Context, k rank) error {
	given := []byte{byte(k.Rank())}
	all, err := k.AllGatherBytes(ctx, given)
	if err != nil {
		return err
	}
	given[0] = 99
	all[0][0] += byte(k.Rank())
	if err := k.Barrier(ctx); err != nil {
		return err
	}
	for i, b := range all {
		want := byte(i)
		if i == 0 {
			want += byte(k.Rank())
		}
		if !slices.Equal(b, []byte{want}) {
			return fmt.Errorf("gathered bytes of rank %d became %v", i, b)
		}
	}
	return nil
}

// checkBarrier lets one rank come late, a different one each time: nobody may
// pass before.
func checkBarrier(r Reporter, s Suite) {
	var came atomic.Int64
	const rounds = 8
	s.mustHold(r, 4, func(ctx context.Context, k rank) error {
		for i := range rounds {
			if i%k.Size() == k.Rank() {
				time.Sleep(2 * time.Millisecond)
			}
			came.Add(1)
			if err := k.Barrier(ctx); err != nil {
				return err
			}
			if n := came.Load(); n < int64((i+1)*k.Size()) {
				return fmt.Errorf("barrier %d opened when %d of %d had come", i, n-int64(i*k.Size()), k.Size())
			}
			if err := k.Barrier(ctx); err != nil {
				return err
			}
		}
		return k.Close()
	})
}

// checkNestedSplits splits a world of 8 twice and looks at ranks and sums; the
// second split reverses the order.
func checkNestedSplits(r Reporter, s Suite) {
	s.mustHold(r, 8, func(ctx context.Context, k rank) error {
		world := k.Rank()
		half, err := k.Split(ctx, world/4, 0)
		if err != nil {
			return err
		}
		color := half.Rank() % 2
		if world == 7 {
			color = -1
		}
		inner, err := half.Split(ctx, color, -half.Rank())
		if err != nil {
			return err
		}
		if world == 7 {
			if inner != nil {
				return fmt.Errorf("split with a negative color gave a group of %v", inner.Ranks())
			}
			return nil
		}
		want := [][]int{{2, 0}, {3, 1}, {2, 0}, {3, 1}, {6, 4}, {5}, {6, 4}}[world]
		if got := inner.Ranks(); !slices.Equal(got, want) || want[inner.Rank()] != world {
			return fmt.Errorf("nested group is %v with this rank at %d, want %v", got, inner.Rank(), want)
		}
		sum := 0
		for _, w := range want {
			sum += w
		}
		x := []uint64{uint64(world)}
		if err := inner.AllReduceInt(ctx, x, kernels.Sum); err != nil {
			return err
		}
		if x[0] != uint64(sum) {
			return fmt.Errorf("sum in group %v is %d, want %d", want, x[0], sum)
		}
		return nil
	})
}

// checkDuplicates overlaps operations on two duplicates of a group, submitted in
// another order on each rank.
func checkDuplicates(r Reporter, s Suite) {
	const rounds = 20
	s.mustHold(r, 4, func(ctx context.Context, k rank) error {
		var queues [2]*comm.Queue
		var groups [2]comm.Communicator
		for i := range queues {
			g, err := k.Split(ctx, 0, k.Rank())
			if err != nil {
				return err
			}
			groups[i], queues[i] = g, comm.NewQueue(ctx)
			defer queues[i].Close()
		}
		var sums [2][rounds]kernels.Tensor
		for n := range 2 * rounds {
			i := (n + k.Rank()) % 2
			x := k.vector(float32(k.Rank()+n/2), float32(i))
			sums[i][n/2] = x
			queues[i].Submit(func(ctx context.Context) error { return groups[i].AllReduce(ctx, x, kernels.Sum) })
		}
		for i, q := range queues {
			if err := q.Wait(); err != nil {
				return err
			}
			for n, x := range sums[i] {
				if err := k.expect(x, float32(6+4*n), float32(4*i)); err != nil {
					return fmt.Errorf("duplicate %d, all-reduce %d: %w", i, n, err)
				}
			}
		}
		return nil
	})
}
