//go:build unix

package engine

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// staged carries the elements of a backend whose memory links cannot read: an operation
// is one over copies in host memory, where the same kernels reduce to the same bits.
type staged struct {
	comm.Communicator
	be, host kernels.Backend
	rooms    [2]kernels.Buffer // of host, for one operation
}

func stage(c comm.Communicator, be, host kernels.Backend) comm.Communicator {
	return &staged{Communicator: c, be: be, host: host}
}

// Moved implements comm.Mover.
func (s *staged) Moved() int64 {
	if m, ok := s.Communicator.(comm.Mover); ok {
		return m.Moved()
	}
	return names.NotCounted
}

// copyOf is a tensor of host memory like t, at an offset, with what t holds if it is read.
// One that is absent or strided stays so, for the communicator to refuse.
func (s *staged) copyOf(room int, t kernels.Tensor, off int, read bool) (kernels.Tensor, error) {
	if t.Absent() {
		return t, nil
	}
	n := off + max(t.Rows-1, 0)*t.Stride + t.Cols
	if s.rooms[room] == nil || s.rooms[room].Len() < n {
		buf, err := s.host.Alloc(n)
		if err != nil {
			return t, err
		}
		if s.rooms[room] != nil {
			s.host.Free(s.rooms[room])
		}
		s.rooms[room] = buf
	}
	h := t
	h.Buf, h.Off = s.rooms[room], off
	if !read || !t.Contiguous() {
		return h, nil
	}
	x, _ := s.host.Host(h)
	return h, s.be.Read(x, t)
}

// copies are those of two tensors: in one room where they share elements, so that the
// communicator sees how.
func (s *staged) copies(dst, src kernels.Tensor) (to, from kernels.Tensor, err error) {
	room, offDst, offSrc := 1, 0, 0
	if !dst.Absent() && !src.Absent() {
		if d, r := s.be.Span(dst), s.be.Span(src); d.Overlaps(r) {
			const bytes = 4
			lo := min(d.Lo, r.Lo)
			room, offDst, offSrc = 0, int(d.Lo-lo)/bytes, int(r.Lo-lo)/bytes
			if _, err = s.copyOf(room, dst, offDst, false); err != nil { // room for both
				return to, from, err
			}
		}
	}
	if from, err = s.copyOf(0, src, offSrc, true); err == nil {
		to, err = s.copyOf(room, dst, offDst, false)
	}
	return to, from, err
}

// back copies what an operation set from host memory.
func (s *staged) back(op string, t, from kernels.Tensor) error {
	x, _ := s.host.Host(from)
	s.be.Write(t, x)
	if err := s.be.Sync(); err != nil {
		return s.broken(op, err)
	}
	return nil
}

// run stages an operation that reads src and, unless it is absent, sets dst. A fault of the
// backend ends the group, as it would within an operation.
func (s *staged) run(op string, dst, src kernels.Tensor, f func(dst, src kernels.Tensor) error) error {
	to, from, err := s.copies(dst, src)
	if err != nil {
		return s.broken(op, err)
	}
	if err := f(to, from); err != nil || dst.Absent() {
		return err
	}
	return s.back(op, dst, to)
}

// inPlace is run for an operation that sets what it reads.
func (s *staged) inPlace(op string, x kernels.Tensor, f func(x kernels.Tensor) error) error {
	h, err := s.copyOf(0, x, 0, true)
	if err != nil {
		return s.broken(op, err)
	}
	if err := f(h); err != nil {
		return err
	}
	return s.back(op, x, h)
}

// broken leaves the group, so that peers do not wait, and says why.
func (s *staged) broken(op string, err error) error {
	_ = s.Communicator.Close() // the fault is what matters
	return &comm.Error{Op: op, Rank: s.Ranks()[s.Rank()], Peer: -1, Err: err}
}

// AllReduce implements comm.Communicator.
func (s *staged) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	return s.inPlace(names.OpAllReduce, x, func(x kernels.Tensor) error { return s.Communicator.AllReduce(ctx, x, op) })
}

// ReduceScatter implements comm.Communicator.
func (s *staged) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	return s.run(names.OpReduceScatter, dst, src, func(dst, src kernels.Tensor) error {
		return s.Communicator.ReduceScatter(ctx, dst, src, bounds, op)
	})
}

// AllGather implements comm.Communicator.
func (s *staged) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	return s.run(names.OpAllGather, dst, src, func(dst, src kernels.Tensor) error {
		return s.Communicator.AllGather(ctx, dst, src, bounds)
	})
}

// Broadcast implements comm.Communicator.
func (s *staged) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	return s.inPlace(names.OpBroadcast, x, func(x kernels.Tensor) error { return s.Communicator.Broadcast(ctx, x, root) })
}

// Send implements comm.Communicator.
func (s *staged) Send(ctx context.Context, x kernels.Tensor, to int) error {
	return s.run(names.OpSend, kernels.Tensor{}, x, func(_, x kernels.Tensor) error { return s.Communicator.Send(ctx, x, to) })
}

// Recv implements comm.Communicator.
func (s *staged) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	return s.inPlace(names.OpRecv, x, func(x kernels.Tensor) error { return s.Communicator.Recv(ctx, x, from) })
}

// Split implements comm.Communicator.
func (s *staged) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	c, err := s.Communicator.Split(ctx, color, key)
	if err != nil || c == nil {
		return c, err
	}
	return stage(c, s.be, s.host), nil
}

// Close implements comm.Communicator.
func (s *staged) Close() error {
	for i, buf := range s.rooms {
		if buf != nil {
			s.host.Free(buf)
			s.rooms[i] = nil
		}
	}
	return s.Communicator.Close()
}
