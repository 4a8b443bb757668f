package comm_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

func TestRecords(t *testing.T) {
	var mu sync.Mutex
	byRank := map[int][]comm.Record{}
	comms := observed(t, 3, comm.Options{}, func(r comm.Record) {
		mu.Lock()
		defer mu.Unlock()
		byRank[r.Rank] = append(byRank[r.Rank], r)
	})
	label := comm.Label{Group: names.DP, Tensor: "w", Lo: 3, Hi: 8}
	must(t, comms, func(c comm.Communicator) error {
		ctx := comm.WithLabel(t.Context(), label)
		if err := c.AllReduce(ctx, vector(1, 2, 3, 4, 5), kernels.Max); err != nil {
			return err
		}
		g, err := c.Split(t.Context(), c.Rank()/2, -c.Rank())
		if err != nil {
			return err
		}
		if err := g.Broadcast(t.Context(), vector(1, 2), 0); err != nil {
			return err
		}
		switch c.Rank() {
		case 0:
			return errors.Join(c.Send(t.Context(), vector(1, 2, 3), 2), c.Send(t.Context(), vector(), 2))
		case 2:
			return errors.Join(c.Recv(t.Context(), vector(1, 2, 3), 0), c.Recv(t.Context(), vector(), 0))
		}
		return nil
	})
	world := []int{0, 1, 2}
	want := []comm.Record{
		{Op: names.OpAllReduce, Group: world, Count: 5, Bytes: 27, Moved: 32, Peer: -1, Reduction: kernels.Max, Label: label},
		{Op: names.OpSplit, Group: world, Seq: 1, Peer: -1},
		{Op: names.OpBroadcast, Group: []int{1, 0}, Count: 2, Bytes: 4, Moved: 8, Peer: 1},
		{Op: names.OpSend, Group: world, Count: 3, Bytes: 12, Peer: 2},
		{Op: names.OpSend, Group: world, Seq: 1, Peer: 2},
	}
	if diff := cmp.Diff(want, byRank[0]); diff != "" {
		t.Errorf("records of rank 0 (-want +got):\n%s", diff)
	}
	recv := byRank[2][4]
	if recv.Op != names.OpRecv || recv.Peer != 0 || recv.Bytes != 0 || byRank[2][3].Moved != 12 || recv.Seq != 1 {
		t.Errorf("record of the receiver: %+v", recv)
	}
}

// What the ranks of a group are seen to move is what the formula says; the star
// moves more in a reduce-scatter, whose every part passes through rank 0.
func TestMovedBytes(t *testing.T) {
	for _, algorithm := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		for size := 1; size <= 5; size++ {
			for _, n := range []int{0, 1, 5, 12} {
				t.Run(fmt.Sprintf("%s of %d over %d", algorithm, n, size), func(t *testing.T) { checkMoved(t, algorithm, size, n) })
			}
		}
	}
}

func checkMoved(t *testing.T, algorithm names.Algorithm, size, n int) {
	var mu sync.Mutex
	moved, bytes := map[string]int64{}, map[string]int64{}
	comms := observed(t, size, comm.Options{Algorithm: algorithm}, func(r comm.Record) {
		mu.Lock()
		defer mu.Unlock()
		moved[r.Op] += r.Moved
		bytes[r.Op] += r.Bytes
	})
	must(t, comms, func(c comm.Communicator) error {
		own := shard.Part{Index: c.Rank(), Size: size}.Of(n).Len()
		return errors.Join(
			c.AllReduce(t.Context(), vector(make([]float32, n)...), kernels.Sum),
			c.ReduceScatter(t.Context(), vector(make([]float32, own)...), vector(make([]float32, n)...), nil, kernels.Sum),
			c.AllGather(t.Context(), vector(make([]float32, n)...), vector(make([]float32, own)...), nil),
			c.Broadcast(t.Context(), vector(make([]float32, n)...), size-1),
			c.AllReduceInt(t.Context(), make([]uint64, n), kernels.Sum))
	})
	for _, op := range []string{names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast, names.OpAllReduceInt} {
		if more := algorithm == names.Star && moved[op] > bytes[op]; moved[op] != bytes[op] && !more {
			t.Errorf("%s moved %d bytes, the formula says %d", op, moved[op], bytes[op])
		}
	}
}

func TestRecordOfAFailure(t *testing.T) {
	var mu sync.Mutex
	var got []comm.Record
	comms := observed(t, 2, comm.Options{}, func(r comm.Record) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r)
	})
	errs := each(comms, func(c comm.Communicator) error {
		if c.Rank() == 1 {
			return c.Broadcast(t.Context(), vector(1), 7)
		}
		return c.Barrier(t.Context())
	})
	for _, r := range got {
		if r.Err == nil || !errors.Is(r.Err, errs[r.Rank]) {
			t.Errorf("record of rank %d holds %v, the operation returned %v", r.Rank, r.Err, errs[r.Rank])
		}
	}
	if len(got) != 2 {
		t.Errorf("%d records, want 2", len(got))
	}
}

// A failed operation has the bytes that it moved itself, whatever the one before
// it moved.
func TestMovedBytesOfAFailure(t *testing.T) {
	receiver := &brittle{}
	comms, err := comm.NewLocal(2, func(r int) kernels.Backend {
		if r == 1 {
			return receiver
		}
		return commtest.Memory{}
	}, comm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := make([][]comm.Record, 2)
	for i, c := range comms {
		comms[i] = comm.Recorded(c, func(r comm.Record) { got[i] = append(got[i], r) })
	}
	message := func(c comm.Communicator, n int) error {
		if c.Rank() == 0 {
			return c.Send(t.Context(), vector(make([]float32, n)...), 1)
		}
		return c.Recv(t.Context(), vector(make([]float32, n)...), 0)
	}
	must(t, comms, func(c comm.Communicator) error { return message(c, 5) })
	receiver.late = errors.New("device lost") // once it has copied
	each(comms, func(c comm.Communicator) error { return message(c, 3) })
	each(comms, func(c comm.Communicator) error { return c.AllReduce(t.Context(), vector(1), kernels.Sum) })
	for i, want := range []int64{20, 12, 0} {
		if r, s := got[1][i], got[0][i]; r.Moved != want || s.Moved != 0 || (r.Err == nil) != (i == 0) || (s.Err == nil) != (i == 0) {
			t.Errorf("operation %d moved %d bytes on the receiver, %d on the sender, errors %v and %v: want %d and 0", i, r.Moved, s.Moved, r.Err, s.Err, want)
		}
	}
}

// Shares add up to the total for every operation, also beyond 2^31 elements.
func TestShareBytes(t *testing.T) {
	ops := []string{names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast, names.OpBarrier, names.OpAllReduceInt}
	for _, op := range ops {
		for size := 1; size <= 9; size++ {
			for _, count := range []int64{0, 1, 7, 1<<31 - 1, 1<<31 + 1, 1 << 40} {
				sum, least, most := int64(0), int64(math.MaxInt64), int64(0)
				for r := range size {
					s := comm.ShareBytes(op, count, shard.Part{Index: r, Size: size})
					sum, least, most = sum+s, min(least, s), max(most, s)
				}
				if sum != names.WireBytes(op, count, size) || most-least > 1 {
					t.Errorf("%s of %d on %d ranks: shares from %d to %d add up to %d, want %d", op, count, size, least, most, sum, names.WireBytes(op, count, size))
				}
			}
		}
	}
	if got := names.WireBytes(names.OpAllReduce, 1<<33+1, 4); got != 2*3*4*(1<<33+1) {
		t.Errorf("all-reduce of 2^33+1 elements moves %d bytes", got)
	}
	if got := comm.ShareBytes(names.OpSend, 1<<31+5, shard.Part{Index: 3, Size: 8}); got != 4*(1<<31+5) {
		t.Errorf("send of 2^31+5 elements moves %d bytes", got)
	}
}
