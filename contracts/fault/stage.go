package fault

import (
	"context"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Layers makes one rank believe in another number of layers, by which it takes
// other ones than the plan gives it.
func Layers(rank, layers int) Fault {
	return Config(func(r int, c *spec.Config) {
		if r == rank {
			c.Model.Layers = layers
		}
	})
}

// piped is a communicator between stages with its messages replaced.
type piped struct {
	comm.Communicator
	send func(ctx context.Context, x kernels.Tensor, to int) error
	recv func(ctx context.Context, x kernels.Tensor, from int) error
}

func (p *piped) Send(ctx context.Context, x kernels.Tensor, to int) error {
	if p.send == nil {
		return p.Communicator.Send(ctx, x, to)
	}
	return p.send(ctx, x, to)
}

func (p *piped) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	if p.recv == nil {
		return p.Communicator.Recv(ctx, x, from)
	}
	return p.recv(ctx, x, from)
}

// SkipMessages swallows messages of one label ("tied gradient") on both sides:
// receivers keep what is in their buffers.
func SkipMessages(label string) Fault {
	return func(p *launch.Parts) {
		onGroup(p, names.PP, func(_ int, c comm.Communicator) comm.Communicator {
			skip := func(next func(context.Context, kernels.Tensor, int) error) func(context.Context, kernels.Tensor, int) error {
				return func(ctx context.Context, x kernels.Tensor, peer int) error {
					if comm.LabelOf(ctx).Tensor == label {
						return nil
					}
					return next(ctx, x, peer)
				}
			}
			return &piped{c, skip(c.Send), skip(c.Recv)}
		})
	}
}

// SwapMessages makes one rank send its n-th message (from 0) after the next one,
// which must be of equal length and follow without a receive between.
func SwapMessages(rank, n int) Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		onGroup(p, names.PP, func(r int, c comm.Communicator) comm.Communicator {
			if r != rank {
				return c
			}
			sent := 0
			var held []float32
			return &piped{Communicator: c, send: func(ctx context.Context, x kernels.Tensor, to int) error {
				sent++
				switch sent - 1 {
				case n:
					held = make([]float32, x.Len())
					return memory.of(r).Read(held, x)
				case n + 1:
					if err := c.Send(ctx, x, to); err != nil {
						return err
					}
					return memory.lend(r, held, func(y kernels.Tensor) error { return c.Send(ctx, y, to) })
				}
				return c.Send(ctx, x, to)
			}}
		})
	}
}

// lend hands f a tensor of its own that holds v, on rank's backend.
func (b *backends) lend(rank int, v []float32, f func(kernels.Tensor) error) error {
	be := b.of(rank)
	buf, err := be.Alloc(len(v))
	if err != nil {
		return err
	}
	defer be.Free(buf)
	be.Write(kernels.Flat(buf), v)
	return f(kernels.Flat(buf))
}

// StaleReceive leaves in one rank's buffer, whenever an activation is shorter
// than the longest before it, what that one was: the receive buffer was made
// once, and the shorter message goes elsewhere.
func StaleReceive(rank int) Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		onGroup(p, names.PP, func(r int, c comm.Communicator) comm.Communicator {
			if r != rank {
				return c
			}
			var longest []float32
			return &piped{Communicator: c, recv: func(ctx context.Context, x kernels.Tensor, from int) error {
				err := c.Recv(ctx, x, from)
				if err != nil || comm.LabelOf(ctx).Tensor != schedule.RecvForward.String() {
					return err
				}
				if n := x.Len(); n < len(longest) {
					memory.of(r).Write(x, longest[:n])
					return nil
				}
				longest = make([]float32, x.Len())
				return memory.of(r).Read(longest, x)
			}}
		})
	}
}

// FixedShape makes all stages but the first (ranks from 1 on) take every
// micro-batch of a pipeline for one of so many sequences, the first one's shape:
// shorter ones get a sequence without targets, and messages between stages have
// one length, elements.
func FixedShape(sequences, elements int) Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		onSource(p, func(rank int, s train.Source) train.Source {
			if rank == 0 {
				return s
			}
			return sourceFunc(func(step, worker, workers int) ([]data.Sequence, []int64) {
				seqs, ids := s.Sequences(step, worker, workers)
				for len(seqs)%sequences != 0 {
					last := seqs[len(seqs)-1]
					seqs, ids = append(slices.Clip(seqs), blank(last)), append(slices.Clip(ids), -1)
				}
				return seqs, ids
			})
		})
		onGroup(p, names.PP, func(r int, c comm.Communicator) comm.Communicator {
			return padded(c, func() kernels.Backend { return memory.of(r) }, elements)
		})
	}
}

// blank copies a sequence without its targets.
func blank(s data.Sequence) data.Sequence {
	s.Targets = slices.Clone(s.Targets)
	for i := range s.Targets {
		s.Targets[i] = -1
	}
	s.Valid = 0
	return s
}

// padded sends every message of at most so many elements as one of exactly so
// many, cut or filled with what the buffer held before.
func padded(c comm.Communicator, be func() kernels.Backend, elements int) comm.Communicator {
	var buf kernels.Buffer
	buffer := func() (kernels.Tensor, error) {
		var err error
		if buf == nil {
			buf, err = be().Alloc(elements)
		}
		if err != nil {
			return kernels.Tensor{}, err
		}
		return kernels.Flat(buf), nil
	}
	pad := func(send bool) func(context.Context, kernels.Tensor, int) error {
		return func(ctx context.Context, x kernels.Tensor, peer int) error {
			y, err := buffer()
			switch {
			case err != nil:
				return err
			case strings.HasPrefix(comm.LabelOf(ctx).Tensor, "tied") && send:
				return c.Send(ctx, x, peer)
			case strings.HasPrefix(comm.LabelOf(ctx).Tensor, "tied"):
				return c.Recv(ctx, x, peer)
			case send:
				be().Copy(y.Range(0, x.Len()), x.Range(0, x.Len()))
				return c.Send(ctx, y, peer)
			}
			err = c.Recv(ctx, y, peer)
			if err == nil {
				be().Copy(x.Range(0, x.Len()), y.Range(0, x.Len()))
			}
			return err
		}
	}
	return &piped{c, pad(true), pad(false)}
}

// forgetful is a backend some of whose weight gradients are lost.
type forgetful struct {
	kernels.Backend
	from, to, calls int
}

func (f *forgetful) MatMulTN(c, a, b kernels.Tensor) {
	f.calls++
	if f.calls > f.from && f.calls <= f.to {
		return
	}
	f.Backend.MatMulTN(c, a, b)
}

// LoseGradients loses weight gradients [from, to) of one rank, counted in the
// order of its backward passes: seven matrices a block and micro-batch.
func LoseGradients(rank, from, to int) Fault {
	return func(p *launch.Parts) {
		onBackend(p, func(r int, be kernels.Backend) kernels.Backend {
			if r != rank {
				return be
			}
			return &forgetful{Backend: be, from: from, to: to}
		})
	}
}

// onSchedule changes the pipeline schedule on all ranks.
func onSchedule(p *launch.Parts, change func(schedule.Schedule) schedule.Schedule) {
	before := p.Schedule
	p.Schedule = func(rank int, s schedule.Schedule) schedule.Schedule {
		if before != nil {
			s = before(rank, s)
		}
		return change(s)
	}
}

// AllForwardFirst runs GPipe's schedule in place of the plan's: no activations
// are freed before all are held.
func AllForwardFirst() Fault {
	return func(p *launch.Parts) {
		onSchedule(p, func(s schedule.Schedule) schedule.Schedule {
			if g, err := schedule.GPipe(len(s.Stages), s.Micros); err == nil {
				return g
			}
			return s // sizes that the plan's schedule has are never refused
		})
	}
}

// SwapBackward exchanges the backward passes, and their messages, of two
// micro-batches; all forward passes must come first.
func SwapBackward(a, b int) Fault {
	return func(p *launch.Parts) {
		onSchedule(p, func(s schedule.Schedule) schedule.Schedule {
			for _, list := range s.Stages {
				for i := range list {
					x := &list[i]
					if x.Kind != schedule.Backward && x.Kind != schedule.SendBackward && x.Kind != schedule.RecvBackward {
						continue
					}
					switch x.Micro {
					case a:
						x.Micro = b
					case b:
						x.Micro = a
					}
				}
			}
			return s
		})
	}
}

// OneAtATime takes each micro-batch forward and backward through all stages
// before the next one begins: nothing overlaps. It is for one chunk per stage.
func OneAtATime() Fault {
	return func(p *launch.Parts) {
		onSchedule(p, func(s schedule.Schedule) schedule.Schedule {
			for i := range s.Stages {
				slices.SortStableFunc(s.Stages[i], func(a, b schedule.Action) int { return a.Micro - b.Micro })
			}
			return s
		})
	}
}
