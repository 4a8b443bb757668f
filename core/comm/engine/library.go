//go:build unix

package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// library leaves all-reduces to that of the transport. All else is the tree's.
type library struct{ tree }

// allReduce begins when all ranks have called it, so that the library is never given
// what does not fit together. What it moves nobody counts.
func (library) allReduce(ctx context.Context, x *exchange, t kernels.Tensor, op kernels.Op) *protocol.Failure {
	e := x.e
	if e.reducer == nil {
		return x.broken(fmt.Errorf("algorithm %s reduces over all of the world's %d ranks, and this group has %d of them", names.MPI, e.n.cfg.Size, len(e.ranks)))
	}
	if f := x.meet(ctx); f != nil {
		return f
	}
	e.moved = names.NotCounted
	if _, err := e.bytes(t); err != nil || t.Len() == 0 { // where the host cannot read it
		return x.unless(err)
	}
	data, _ := e.n.be.Host(t)
	if err := e.reducer.AllReduce(data, op); err != nil {
		return x.broken(err)
	}
	for begun := time.Now(); ; {
		over, err := e.reducer.Over()
		if over || err != nil {
			return x.unless(err)
		}
		if f := x.interrupted(ctx); f != nil {
			return f
		}
		waited := time.Since(begun)
		if waited > e.n.cfg.Deadline {
			return x.expired(e.ranks)
		}
		if err := poll(nil, nap(waited)); err != nil && !errors.Is(err, unix.EINTR) {
			return x.broken(err)
		}
	}
}

// reducer gives a group of all ranks of the world its own: the world at its first
// collective, others when they are split. Rank 0, which is in one process whatever the
// world, says which. links are those of the group's ranks.
func (x *exchange) reducer(ctx context.Context, of *end, links []*link) *protocol.Failure {
	n := of.n
	if n.cfg.Algorithm != names.MPI || of.reducer != nil || len(links) == 1 || len(links) < n.cfg.Size || x.call.IsMessage() {
		return nil
	}
	own, lib := make([]byte, 8), n.cfg.control().Library
	if of.me() == 0 {
		number, err := lib.Take()
		if err != nil {
			return x.broken(err)
		}
		binary.LittleEndian.PutUint64(own, uint64(number))
	}
	said, f := x.gather(ctx, own, func(int) int { return len(own) })
	if f != nil {
		return f
	}
	x.next()
	all := make([]Link, len(links))
	for i, l := range links {
		if l != nil {
			all[i] = l.Link
		}
	}
	var err error
	for i, world := range x.e.ranks {
		if world == 0 {
			of.reducer, err = lib.Reducer(int(binary.LittleEndian.Uint64(said[i])), all, of.rank)
		}
	}
	return x.unless(err)
}

// unless is the failure of this rank's part of an operation, nil where err is.
func (x *exchange) unless(err error) *protocol.Failure {
	if err == nil {
		return nil
	}
	return x.broken(err)
}
