package fault

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/kernels"
)

// reduction is the part of a communicator that most faults replace.
type reduction func(ctx context.Context, x kernels.Tensor, op kernels.Op) error

// onAllReduce decorates every all-reduce of every rank.
func onAllReduce(p *launch.Parts, decorate func(rank int, be func() kernels.Backend, c comm.Communicator, next reduction) reduction) {
	memory := watch(p)
	onComm(p, func(rank int, c comm.Communicator) comm.Communicator {
		be := func() kernels.Backend { return memory.of(rank) }
		return &hooked{Communicator: c, allReduce: decorate(rank, be, c, c.AllReduce)}
	})
}

// LoseContribution clears one rank's elements before every sum.
func LoseContribution(rank int) Fault {
	return func(p *launch.Parts) {
		onAllReduce(p, func(r int, be func() kernels.Backend, _ comm.Communicator, next reduction) reduction {
			return func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				if r == rank && op == kernels.Sum {
					be().Fill(x, 0)
				}
				return next(ctx, x, op)
			}
		})
	}
}

// LoseTail reduces only as many elements as the ranks divide evenly.
func LoseTail() Fault {
	return func(p *launch.Parts) {
		onAllReduce(p, func(_ int, _ func() kernels.Backend, c comm.Communicator, next reduction) reduction {
			return func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				return next(ctx, x.Range(0, x.Len()-x.Len()%c.Size()), op)
			}
		})
	}
}

// TrimToPeers reduces n elements where n+1 are given, as a transport that takes
// the smallest of the ranks' sizes does.
func TrimToPeers(n int) Fault {
	return func(p *launch.Parts) {
		onAllReduce(p, func(_ int, _ func() kernels.Backend, _ comm.Communicator, next reduction) reduction {
			return func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				if x.Len() == n+1 {
					x = x.Range(0, n)
				}
				return next(ctx, x, op)
			}
		})
	}
}

// FlipAfter flips a bit of the last element that one rank gets from its n-th
// all-reduce (from 0; empty ones are not counted).
func FlipAfter(rank, n int, bit uint) Fault {
	return func(p *launch.Parts) {
		onAllReduce(p, func(r int, be func() kernels.Backend, _ comm.Communicator, next reduction) reduction {
			calls := 0
			return func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				if err := next(ctx, x, op); err != nil || x.Len() == 0 {
					return err
				}
				calls++
				if r != rank || calls != n+1 {
					return nil
				}
				return flip(be(), x.Range(x.Len()-1, x.Len()), bit)
			}
		})
	}
}

// ReverseTree adds the ranks in descending order.
func ReverseTree() Fault {
	return func(p *launch.Parts) {
		onAllReduce(p, func(_ int, _ func() kernels.Backend, c comm.Communicator, _ reduction) reduction {
			return func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				back, err := c.Split(ctx, 0, -c.Rank())
				if err != nil {
					return err
				}
				defer back.Close()
				return back.AllReduce(ctx, x, op)
			}
		})
	}
}

// subgroups decorates the groups that are split from a communicator.
type subgroups struct {
	comm.Communicator
	decorate func(comm.Communicator) comm.Communicator
}

func (s *subgroups) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	c, err := s.Communicator.Split(ctx, color, key)
	if c == nil || err != nil {
		return c, err
	}
	return s.decorate(c), nil
}

// RootOfWorld makes sub-groups broadcast from the rank after the one asked for.
func RootOfWorld() Fault {
	return func(p *launch.Parts) {
		onComm(p, func(_ int, c comm.Communicator) comm.Communicator {
			return &subgroups{c, func(sub comm.Communicator) comm.Communicator {
				return &hooked{Communicator: sub, broadcast: func(ctx context.Context, x kernels.Tensor, root int) error {
					return sub.Broadcast(ctx, x, (root+1)%sub.Size())
				}}
			}}
		})
	}
}

// scattering replaces ReduceScatter.
type scattering struct {
	comm.Communicator
	be func() kernels.Backend
}

func (s *scattering) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	if dst.Buf == src.Buf {
		s.be().Fill(dst, 0)
	}
	return s.Communicator.ReduceScatter(ctx, dst, src, bounds, op)
}

// OverwriteInPlace clears the output of a reduce-scatter before the input is
// read, which shows where the output is part of the input.
func OverwriteInPlace() Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		onComm(p, func(rank int, c comm.Communicator) comm.Communicator {
			return &scattering{c, func() kernels.Backend { return memory.of(rank) }}
		})
	}
}
