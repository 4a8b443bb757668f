package commtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// recording collects the records of a world, by rank.
type recording struct {
	mu     sync.Mutex
	byRank [][]comm.Record
}

// record opens a world whose operations are recorded.
func (s Suite) record(size int) ([]comm.Communicator, *recording, error) {
	comms, err := s.Open(size)
	if err != nil {
		return nil, nil, fmt.Errorf("open a world of %d: %w", size, err)
	}
	recorded := s.Record
	if recorded == nil {
		recorded = comm.Recorded
	}
	rec := &recording{byRank: make([][]comm.Record, size)}
	for i, c := range comms {
		comms[i] = recorded(c, func(r comm.Record) {
			rec.mu.Lock()
			defer rec.mu.Unlock()
			rec.byRank[i] = append(rec.byRank[i], r)
		})
	}
	return comms, rec, nil
}

// checkRecords drills recorded worlds: the records are those of the operations
// that the drill has, on the world and on the groups split from it.
func checkRecords(r Reporter, s Suite) {
	label := comm.Label{Group: names.World, Tensor: "drill", Lo: 3, Hi: 14, Step: 15}
	for _, size := range []int{1, 2, 3, 5} {
		comms, rec, err := s.record(size)
		if err != nil {
			r.Errorf("%v", err)
			return
		}
		s.each(comms, func(ctx context.Context, k rank) error {
			comm.Drill(comm.WithLabel(ctx, label), []comm.Communicator{k.Communicator}, s.Backend, drillSeed, s.Level)
			return k.Close()
		})
		rec.mu.Lock()
		for i, got := range rec.byRank {
			want := implied(size, i, s.Level, label)
			if problem := compare(got, want); problem != nil {
				r.Errorf("records of rank %d of %d: %v", i, size, problem)
			}
		}
		if problem := checkMoved(slices.Concat(rec.byRank...)); problem != nil {
			r.Errorf("bytes moved by %d ranks: %v", size, problem)
		}
		rec.mu.Unlock()
	}
}

// implied lists the records that a drill gives on one rank.
func implied(size, rank, level int, label comm.Label) (all []comm.Record) {
	world := shard.Bounds(size, size)[:size] // 0, 1, ...
	w := newTally(world, rank, label)
	for it := range drill.Iterations(level) {
		for _, rec := range drill.Steps(world, rank, drillSeed, it, level) {
			all = append(all, w.record(rec))
		}
		for _, cut := range drill.Cuts(size, level) {
			group := cut.Group(world, rank)
			all = append(all, w.record(drill.Split(world, rank, it)))
			g := newTally(group, rank, label)
			if group == nil {
				continue
			}
			for _, rec := range drill.Steps(group, rank, drillSeed, it, level) {
				all = append(all, g.record(rec))
			}
		}
	}
	return all
}

// tally numbers the operations of a rank on one group: messages by receiver or
// sender, collectives under the empty key.
type tally struct {
	group []int
	rank  int
	label comm.Label
	seq   map[string]uint64
}

func newTally(group []int, rank int, label comm.Label) *tally {
	return &tally{group, rank, label, map[string]uint64{}}
}

// record is the record of an operation of the drill on the group.
func (t *tally) record(d drill.Record) comm.Record {
	key, count := "", d.Count
	switch d.Op {
	case names.OpSend, names.OpRecv:
		key = fmt.Sprint(d.Op, d.Peer)
	case names.OpAllGatherBytes:
		count = len(d.Bytes())
	}
	part := shard.Part{Index: slices.Index(t.group, t.rank), Size: len(t.group)}
	rec := comm.Record{Op: d.Op, Rank: t.rank, Group: t.group, Seq: t.seq[key], Count: int64(count), Peer: d.Peer,
		Bytes: comm.ShareBytes(d.Op, int64(count), part), Reduction: d.Operation(), Label: t.label}
	t.seq[key]++
	return rec
}

// compare finds the first record that is not as it should be, bytes moved aside.
func compare(got, want []comm.Record) error {
	for i, w := range want {
		if i == len(got) {
			break
		}
		g := got[i]
		g.Moved = w.Moved
		if !reflect.DeepEqual(g, w) {
			return fmt.Errorf("record %d is %+v, want %+v", i, g, w)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d records of %d operations", len(got), len(want))
	}
	return nil
}

// checkMoved: who counts what moves counts all of it, at least what the operation
// needs, and nothing where nothing moves. Who does not says so.
func checkMoved(records []comm.Record) error {
	moved, needed := map[string]int64{}, map[string]int64{}
	for _, r := range records {
		if r.Moved == names.NotCounted {
			continue
		}
		switch r.Op {
		case names.OpSend, names.OpRecv:
		case names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast:
			if len(r.Group) == 1 && r.Moved != 0 {
				return fmt.Errorf("%d by %s in a group of one", r.Moved, r.Op)
			}
		default:
			if r.Moved != 0 {
				return fmt.Errorf("%d by %s, which has no tensors", r.Moved, r.Op)
			}
		}
		if r.Moved < 0 {
			return fmt.Errorf("%d by %s", r.Moved, r.Op)
		}
		op := r.Op
		if op == names.OpRecv {
			op = names.OpSend
		}
		moved[op] += r.Moved
		needed[op] += r.Bytes
	}
	for _, op := range slices.Sorted(maps.Keys(needed)) {
		if moved[op] < needed[op] {
			return fmt.Errorf("%d by all operations %s, which need %d", moved[op], op, needed[op])
		}
	}
	return nil
}

// checkRecordsOfFailures lets operations fail after some that succeed, in the
// world and in a group split from it: the records have their numbers, the errors
// that the ranks were given, and not what operations before them moved.
func checkRecordsOfFailures(r Reporter, s Suite) {
	label := comm.Label{Group: names.DP, Tensor: "lost", Lo: 1, Hi: 9, Step: 2}
	for _, c := range []struct {
		name string
		seq  uint64 // of the operation that fails
		fail func(ctx context.Context, world, group rank) error
	}{
		{"in the world", 3, func(ctx context.Context, k, _ rank) error {
			return k.AllReduce(ctx, k.vector(make([]float32, 2+k.Rank()/2)...), kernels.Sum)
		}},
		{"in a group", 1, func(ctx context.Context, _, g rank) error {
			return g.Broadcast(ctx, g.vector(1, 2, 3), g.Rank()/2)
		}},
		{"of a message", 1, func(ctx context.Context, _, g rank) error {
			switch g.Rank() {
			case 0:
				return g.Send(ctx, g.vector(1, 2), 1)
			case 1:
				return g.Recv(ctx, g.vector(1, 2, 3), 0)
			}
			return g.Barrier(ctx)
		}},
	} {
		comms, rec, err := s.record(3)
		if err != nil {
			r.Errorf("%v", err)
			return
		}
		returned := make([]error, len(comms))
		var succeed sync.WaitGroup // a failure may reach a rank before the last thing that its peers did well
		succeed.Add(len(comms))
		s.each(comms, func(ctx context.Context, k rank) error {
			g, err := k.successes(ctx)
			succeed.Done()
			succeed.Wait()
			if err != nil {
				return err
			}
			me := k.Rank()
			returned[me] = c.fail(comm.WithLabel(ctx, label), k, g)
			return errors.Join(returned[me], k.Barrier(ctx))
		})
		rec.mu.Lock()
		for i, got := range rec.byRank {
			if problem := checkFailed(got, returned[i], c.seq, label); problem != nil {
				r.Errorf("records of a failure %s: rank %d: %v", c.name, i, problem)
			}
		}
		rec.mu.Unlock()
	}
}

// succeeded is how many operations successes runs on a rank at least.
const succeeded = 4

// successes runs three collectives on the world, one of which splits off a group
// in reverse order, and there one collective and one long message from rank 0 to 1.
func (k rank) successes(ctx context.Context) (group rank, err error) {
	for range 2 {
		if err := k.AllReduce(ctx, k.vector(1, 2), kernels.Sum); err != nil {
			return group, err
		}
	}
	c, err := k.Split(ctx, 0, -k.Rank())
	if err != nil {
		return group, err
	}
	group = rank{c, k.be}
	if err := group.Barrier(ctx); err != nil {
		return group, err
	}
	x := group.vector(make([]float32, long)...)
	switch group.Rank() {
	case 0:
		return group, group.Send(ctx, x, 1)
	case 1:
		return group, group.Recv(ctx, x, 0)
	}
	return group, nil
}

// long is a count of elements beyond what the operations that fail may move.
const long = 100

// checkFailed judges a rank's records after successes: the operation that failed
// with the given error, and the one after it.
func checkFailed(got []comm.Record, returned error, seq uint64, label comm.Label) error {
	i := slices.IndexFunc(got, func(r comm.Record) bool { return r.Err != nil })
	if i < succeeded || i != len(got)-2 || got[i+1].Err == nil {
		return fmt.Errorf("record %d of %d is the first of a failure, want the last but one", i, len(got))
	}
	switch r := got[i]; {
	case !errors.Is(r.Err, returned):
		return fmt.Errorf("the record of %s holds error %v, the rank was given %v", r.Op, r.Err, returned)
	case r.Op != names.OpBarrier && r.Seq != seq:
		return fmt.Errorf("the failed %s has number %d, want %d", r.Op, r.Seq, seq)
	case r.Label != label:
		return fmt.Errorf("the failed %s has label %+v, want %+v", r.Op, r.Label, label)
	}
	for _, r := range got[i:] {
		if r.Moved > mostMoved(r) {
			return fmt.Errorf("the failed %s moved %d bytes: the most it could is %d", r.Op, r.Moved, mostMoved(r))
		}
	}
	return nil
}

// mostMoved is as much as an operation may move on one rank, whatever its
// algorithm: every element from, and to, each of the others.
func mostMoved(r comm.Record) int64 {
	switch r.Op {
	case names.OpSend, names.OpRecv:
		return 4 * r.Count
	case names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast:
		return 2 * 4 * r.Count * int64(len(r.Group)-1)
	}
	return 0
}
