package commtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// recordDefect is a wrong record, or a communicator whose records must be wrong,
// and the checks that must catch it.
type recordDefect struct {
	name   string
	edit   func(r *comm.Record)                        // of each record
	end    func(c comm.Communicator) comm.Communicator // of each rank
	plain  bool                                        // groups are not recorded
	checks []string
}

// The checks that look at records.
var (
	allRecords = []string{"records", "records of failures"}
	ofResults  = []string{"records"}
	ofFailures = []string{"records of failures"}
)

// recordDefects lists what is recorded wrongly.
func recordDefects() []recordDefect {
	edit := func(name string, checks []string, f func(r *comm.Record)) recordDefect {
		return recordDefect{name: name, edit: f, checks: checks}
	}
	end := func(name string, checks []string, f func(c comm.Communicator) comm.Communicator) recordDefect {
		return recordDefect{name: name, end: f, checks: checks}
	}
	return []recordDefect{
		edit("another operation", ofResults, func(r *comm.Record) {
			if r.Op == names.OpAllReduceInt {
				r.Op = names.OpAllReduce
			}
		}),
		edit("the count of a part", ofResults, func(r *comm.Record) {
			if r.Op == names.OpReduceScatter {
				r.Count /= int64(len(r.Group))
			}
		}),
		edit("all bytes on every rank", ofResults, func(r *comm.Record) { r.Bytes = names.WireBytes(r.Op, r.Count, len(r.Group)) }),
		edit("bytes of a message on its receiver", ofResults, func(r *comm.Record) {
			if r.Op == names.OpRecv {
				r.Bytes = 4 * r.Count
			}
		}),
		edit("numbers from 1", allRecords, func(r *comm.Record) { r.Seq++ }),
		edit("no numbers in groups", allRecords, func(r *comm.Record) {
			if r.Group[0] != 0 || len(r.Group) < 2 {
				r.Seq = 0
			}
		}),
		edit("peers within the group", ofResults, func(r *comm.Record) {
			if len(r.Group) == 2 && r.Peer >= 0 {
				r.Peer = r.Peer % 2
			}
		}),
		edit("a root that is none", ofResults, func(r *comm.Record) { r.Peer = max(r.Peer, 0) }),
		edit("sum for maximum", ofResults, func(r *comm.Record) { r.Reduction = kernels.Sum }),
		edit("no label", allRecords, func(r *comm.Record) { r.Label = comm.Label{} }),
		edit("rank of the group", ofResults, func(r *comm.Record) { r.Rank = max(r.Rank-1, 0) }),
		edit("no errors", ofFailures, func(r *comm.Record) { r.Err = nil }),
		edit("another error", ofFailures, func(r *comm.Record) {
			if r.Err != nil {
				r.Err = comm.ErrMismatch
			}
		}),
		edit("half of what moves", ofResults, func(r *comm.Record) { r.Moved /= 2 }),
		edit("what is sent counts as moved", ofResults, func(r *comm.Record) {
			if r.Op == names.OpAllGatherBytes {
				r.Moved = 8
			}
		}),
		end("a failure has the bytes of the last that succeeded", ofFailures, func(c comm.Communicator) comm.Communicator { return &staleMover{Communicator: c} }),
		{name: "groups are not recorded", plain: true, checks: allRecords},
		end("errors are not numbered", ofFailures, func(c comm.Communicator) comm.Communicator { return unnumbered{c} }),
		end("nothing is counted as moved, as if it were", ofResults, func(c comm.Communicator) comm.Communicator { return stillMover{c} }),
		end("what moves is added up", ofResults, func(c comm.Communicator) comm.Communicator {
			return &totalMover{Communicator: c}
		}),
	}
}

// unnumbered forgets which operation failed.
type unnumbered struct{ comm.Communicator }

func (u unnumbered) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	err := u.Communicator.AllReduce(ctx, x, op)
	if e := (*comm.Error)(nil); errors.As(err, &e) {
		return &comm.Error{Op: e.Op, Rank: e.Rank, Peer: e.Peer, Err: e.Err}
	}
	return err
}

// stillMover says that nothing moves.
type stillMover struct{ comm.Communicator }

func (stillMover) Moved() int64 { return 0 }

// totalMover says what has moved so far.
type totalMover struct {
	comm.Communicator
	sum int64
}

func (t *totalMover) Moved() int64 {
	t.sum += t.Communicator.(comm.Mover).Moved()
	return t.sum
}

// staleMover says what the last message that was received moved.
type staleMover struct {
	comm.Communicator
	last int64
}

func (s *staleMover) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	err := s.Communicator.Recv(ctx, x, from)
	if err == nil {
		s.last = s.Communicator.(comm.Mover).Moved()
	}
	return err
}

func (s *staleMover) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	c, err := s.Communicator.Split(ctx, color, key)
	if c == nil {
		return nil, err
	}
	return &staleMover{Communicator: c}, err
}

func (s *staleMover) Moved() int64 { return s.last }

// record is comm.Recorded with the defect.
func (d recordDefect) record(c comm.Communicator, observe func(comm.Record)) comm.Communicator {
	if d.end != nil {
		c = d.end(c)
	}
	recorded := comm.Recorded(c, func(r comm.Record) {
		if d.edit != nil {
			d.edit(&r)
		}
		observe(r)
	})
	if d.plain {
		return plainGroups{recorded, c}
	}
	return recorded
}

// plainGroups splits into groups that nobody records.
type plainGroups struct {
	comm.Communicator
	plain comm.Communicator
}

func (p plainGroups) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	return p.plain.Split(ctx, color, key)
}

func TestRecordDefectsAreCaught(t *testing.T) {
	for _, d := range recordDefects() {
		t.Run(d.name, func(t *testing.T) {
			for _, check := range d.checks {
				s := suite(names.Tree, 10*time.Second, nil)
				s.Record = d.record
				var r reports
				if find(t, check).Run(&r, s); len(r.lines) == 0 {
					t.Errorf("check %q does not see it", check)
				}
			}
		})
	}
}
