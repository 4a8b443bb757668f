package suite

import (
	"math"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/interleave"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// ownSeed gives every rank a seed of its own: seed + rank.
func ownSeed() fault.Fault {
	return fault.OnConfig(func(rank int, c *spec.Config) { c.Seed += uint64(rank) })
}

// sameShard makes one rank read the shard of rank 0: the logical workers that
// rank 0 of size ranks computes.
func sameShard(rank, size int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		if s.Rank == rank {
			s.Worker %= s.Workers / size
		}
		return s.Do()
	})
}

// dropSequence loses the last sequence of one logical worker in every step.
func dropSequence(worker int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		seqs, ids := s.Do()
		if n := len(seqs); s.Worker == worker && n > 0 {
			return seqs[:n-1], ids[:n-1]
		}
		return seqs, ids
	})
}

// firstHalf updates only the first half of the elements that each call of the
// optimizer is given, as a loop bound of rows instead of elements does.
func firstHalf() fault.Fault {
	return fault.OnUpdate(func(u *fault.Update) {
		n := u.W.Len() / 2
		var half []kernels.Tensor
		for _, m := range u.Moments {
			half = append(half, m.Range(0, n))
		}
		u.W, u.G, u.Moments = u.W.Range(0, n), u.G.Range(0, n), half
		u.Do()
	})
}

// shiftCounter shifts the step number that all ranks' optimizers believe in.
func shiftCounter(by int) fault.Fault {
	return fault.OnUpdate(func(u *fault.Update) {
		u.Step.T += by
		u.Do()
	})
}

// nan writes a NaN into the result of one rank's n-th matrix product.
func nan(rank, n int) fault.Fault {
	return fault.AfterProduct(rank, n, func(be kernels.Backend, c, _ kernels.Tensor) {
		be.Write(fault.First(c), []float32{float32(math.NaN())})
	})
}

// shareBuffer gives ranks a and b one buffer, the n-th allocation (from 0) of at
// least so many elements of whichever comes first. The ranks run one at a time,
// lower ones first, so that who writes to it when is the same in every run.
func shareBuffer(a, b, n, elements int) fault.Fault {
	return func(p *launch.Parts) {
		interleave.Attach(p, interleave.Schedule{Policy: interleave.Lowest})
		s := &shared{n: n, elements: elements}
		for _, rank := range []int{a, b} {
			fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend {
				return &sharing{Backend: be, shared: s}
			})(p)
		}
	}
}

// shared is the buffer of two ranks.
type shared struct {
	n, elements int
	buf         kernels.Buffer // nil until the first of them asks for it
}

// sharing is a backend one of whose buffers is shared.
type sharing struct {
	kernels.Backend
	*shared
	seen int // allocations of the size
}

func (s *sharing) Alloc(n int) (kernels.Buffer, error) {
	if n < s.elements {
		return s.Backend.Alloc(n)
	}
	s.seen++
	if s.seen != s.n+1 {
		return s.Backend.Alloc(n)
	}
	if s.buf != nil {
		return s.buf, nil
	}
	buf, err := s.Backend.Alloc(n)
	s.buf = buf
	return buf, err
}
