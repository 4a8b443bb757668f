package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// sequences are what three ranks do and the numbers of their operations: those
// of the group for collectives, of sender and receiver for messages. A failed
// operation has the number of its error, which is 0 for a message refused before
// its pair is known, and goes up after a collective whose work failed.
func sequences() map[string]struct {
	do   func(c comm.Communicator)
	want [3]string
} {
	ctx := context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	reduce := func(c comm.Communicator) { _ = c.AllReduce(ctx, vector(1, 2), kernels.Sum) }
	message := func(ctx context.Context, c comm.Communicator, sent kernels.Tensor) {
		switch c.Rank() {
		case 0:
			_ = c.Send(ctx, sent, 1)
		case 1:
			_ = c.Recv(context.Background(), vector(1), 0)
		}
	}
	type sequence = struct {
		do   func(c comm.Communicator)
		want [3]string
	}
	return map[string]sequence{
		"mismatch after two": {func(c comm.Communicator) {
			reduce(c)
			reduce(c)
			if c.Rank() == 1 {
				_ = c.Barrier(ctx)
			} else {
				reduce(c)
			}
			reduce(c)
		}, [3]string{
			"all-reduce 0, all-reduce 1, all-reduce 2 failed, all-reduce 2 failed",
			"all-reduce 0, all-reduce 1, barrier 2 failed, all-reduce 2 failed",
			"all-reduce 0, all-reduce 1, all-reduce 2 failed, all-reduce 2 failed",
		}},
		"bad peer": {func(c comm.Communicator) {
			reduce(c)
			message(ctx, c, vector(1))
			message(ctx, c, vector(1))
			if c.Rank() == 0 {
				_ = c.Send(ctx, vector(1), 9)
			}
			_ = c.Barrier(ctx)
		}, [3]string{
			"all-reduce 0, send 0, send 1, send 0 failed, barrier 1 failed",
			"all-reduce 0, recv 0, recv 1, barrier 1 failed",
			"all-reduce 0, barrier 1 failed",
		}},
		"ended before a message": {func(c comm.Communicator) {
			reduce(c)
			message(ctx, c, vector(1))
			message(ctx, c, vector(1))
			message(ended, c, vector(1))
		}, [3]string{
			"all-reduce 0, send 0, send 1, send 0 failed",
			"all-reduce 0, recv 0, recv 1, recv 2 failed",
			"all-reduce 0",
		}},
		"lengths of a message": {func(c comm.Communicator) {
			message(ctx, c, vector(1))
			message(ctx, c, vector(1, 2))
		}, [3]string{"send 0, send 1 failed", "recv 0, recv 1 failed", ""}},
		"failure outside a group": {func(c comm.Communicator) {
			g, _ := c.Split(ctx, 0, -c.Rank())
			reduce(g)
			reduce(g)
			if c.Rank() == 0 {
				_ = c.Broadcast(ctx, vector(1), 7)
			} else {
				_ = c.Barrier(ctx)
			}
			reduce(g)
		}, [3]string{
			"split 0, all-reduce 0, all-reduce 1, broadcast 1 failed, all-reduce 2 failed",
			"split 0, all-reduce 0, all-reduce 1, barrier 1 failed, all-reduce 2 failed",
			"split 0, all-reduce 0, all-reduce 1, barrier 1 failed, all-reduce 2 failed",
		}},
		"fault of rank 1's backend": {func(c comm.Communicator) {
			_ = c.Barrier(ctx)
			reduce(c)
			reduce(c)
		}, [3]string{
			"barrier 0, all-reduce 1 failed, all-reduce 2 failed",
			"barrier 0, all-reduce 1 failed, all-reduce 2 failed",
			"barrier 0, all-reduce 1 failed, all-reduce 2 failed",
		}},
	}
}

func TestSequenceNumbers(t *testing.T) {
	for name, s := range sequences() {
		var got [3][]string
		backend := func(r int) kernels.Backend {
			if r == 1 && strings.HasPrefix(name, "fault") {
				return &brittle{late: errors.New("device lost")}
			}
			return commtest.Memory{}
		}
		comms, err := comm.NewLocal(3, backend, comm.Options{Deadline: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for r, c := range comms {
			comms[r] = comm.Recorded(c, func(rec comm.Record) {
				said := fmt.Sprintf("%s %d", rec.Op, rec.Seq)
				if e := (*comm.Error)(nil); errors.As(rec.Err, &e) {
					said += " failed"
					if e.Seq != rec.Seq {
						t.Errorf("%s: rank %d: %s, but the error says %q", name, r, said, e)
					}
				}
				got[r] = append(got[r], said)
			})
		}
		each(comms, func(c comm.Communicator) error { s.do(c); return nil })
		for r, want := range s.want {
			if diff := cmp.Diff(want, strings.Join(got[r], ", ")); diff != "" {
				t.Errorf("%s: rank %d (-want +got):\n%s", name, r, diff)
			}
		}
	}
}

// foreign is a communicator that counts nothing and fails with errors of its own
// kind once told to.
type foreign struct {
	comm.Communicator
	fails *bool
}

func (f foreign) Barrier(ctx context.Context) error {
	if *f.fails {
		return errors.New("no such group")
	}
	return f.Communicator.Barrier(ctx)
}

func (f foreign) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	c, err := f.Communicator.Split(ctx, color, key)
	if c == nil {
		return nil, err
	}
	return foreign{c, f.fails}, err
}

// What a communicator does not count is not recorded as 0, in groups split from it
// neither; its operations are numbered all the same.
func TestRecordsOfAForeignCommunicator(t *testing.T) {
	for _, counts := range []bool{false, true} {
		fails := false
		var got []comm.Record
		c := world(t, 1, comm.Options{})[0]
		if !counts {
			c = foreign{c, &fails}
		}
		c = comm.Recorded(c, func(r comm.Record) { got = append(got, r) })
		sub, err := c.Split(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Split(t.Context(), -1, 0)
		err = errors.Join(err, sub.AllReduce(t.Context(), vector(1), kernels.Sum), sub.Barrier(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		fails = true
		if err := sub.Barrier(t.Context()); (err != nil) == counts {
			t.Errorf("barrier told to fail: %v", err)
		}
		moved := int64(0)
		if !counts {
			moved = names.NotCounted
		}
		for i, seq := range []uint64{0, 1, 0, 1, 2} {
			if got[i].Seq != seq || got[i].Moved != moved || (got[i].Err != nil) != (i == 4 && !counts) {
				t.Errorf("counting %t: record %d: %+v, want number %d and %d bytes moved", counts, i, got[i], seq, moved)
			}
		}
	}
}

// An operation that a kernel's panic ends is recorded, and the panic goes on.
func TestRecordOfAPanic(t *testing.T) {
	var got []comm.Record
	comms, err := comm.NewLocal(1, func(int) kernels.Backend { return &brittle{panics: true} }, comm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := comm.Recorded(comms[0], func(r comm.Record) { got = append(got, r) })
	if err := c.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = c.AllReduce(t.Context(), vector(1), kernels.Sum)
	}()
	if len(got) != 2 || got[1].Seq != 1 || !errors.Is(got[1].Err, comm.ErrPanicked) {
		t.Errorf("records %+v", got)
	}
}

// Two operations at once are refused by what is recorded, and recorded.
func TestRecordsOfTwoOperationsAtOnce(t *testing.T) {
	records := make(chan comm.Record, 1<<16)
	c := comm.Recorded(world(t, 2, comm.Options{})[0], func(r comm.Record) { records <- r })
	first := make(chan error)
	go func() { first <- c.Barrier(t.Context()) }()
	err := c.Recv(t.Context(), vector(), 1)
	if e := <-first; !errors.Is(err, comm.ErrMismatch) || !errors.Is(e, comm.ErrMismatch) || len(records) != 2 {
		t.Errorf("got %v and %v, %d records", err, e, len(records))
	}
}
