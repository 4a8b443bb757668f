package fault

import (
	"math"
	"sync"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// matmul is a backend whose MatMulNT is followed by after.
type matmul struct {
	kernels.Backend
	after func(c kernels.Tensor)
}

func (m *matmul) MatMulNT(c, a, b kernels.Tensor, groups []int) {
	m.Backend.MatMulNT(c, a, b, groups)
	m.after(c)
}

// afterMatMul calls f once on one rank, after its n-th product of a row-major
// matrix with a transposed one (MatMulNT; n from 0, empty products not counted).
func afterMatMul(p *launch.Parts, rank, n int, f func(be kernels.Backend, c kernels.Tensor)) {
	onBackend(p, func(r int, be kernels.Backend) kernels.Backend {
		if r != rank {
			return be
		}
		calls := 0
		return &matmul{be, func(c kernels.Tensor) {
			if c.Len() == 0 {
				return
			}
			if calls == n {
				f(be, c)
			}
			calls++
		}}
	})
}

// NaN writes a NaN into the result of one rank's n-th matrix product.
func NaN(rank, n int) Fault {
	return func(p *launch.Parts) {
		afterMatMul(p, rank, n, func(be kernels.Backend, c kernels.Tensor) {
			be.Write(kernels.Tensor{Buf: c.Buf, Off: c.Off, Rows: 1, Cols: 1, Stride: 1}, []float32{float32(math.NaN())})
		})
	}
}

// Corrupt flips one bit of the first element of one rank's n-th matrix product,
// as a faulty unit of a processor does.
func Corrupt(rank, n int, bit uint) Fault {
	return func(p *launch.Parts) {
		afterMatMul(p, rank, n, func(be kernels.Backend, c kernels.Tensor) {
			// A read error is a fault of the device, which shows by itself.
			_ = flip(be, kernels.Tensor{Buf: c.Buf, Off: c.Off, Rows: 1, Cols: 1, Stride: 1}, bit)
		})
	}
}

// CorruptIf is Corrupt as long as the condition holds when it is time.
func CorruptIf(condition func() bool, rank, n int, bit uint) Fault {
	return func(p *launch.Parts) {
		afterMatMul(p, rank, n, func(be kernels.Backend, c kernels.Tensor) {
			if condition() {
				_ = flip(be, kernels.Tensor{Buf: c.Buf, Off: c.Off, Rows: 1, Cols: 1, Stride: 1}, bit)
			}
		})
	}
}

// ShareBuffer gives rank b a buffer of rank a: the n-th allocation (from 0) of
// at least so many elements. The kernels that touch optimizer state take turns
// on it, so that a moment may be shared without a data race.
func ShareBuffer(a, b, n, elements int) Fault {
	return func(p *launch.Parts) {
		s := &shared{n: n, elements: elements, ready: make(chan struct{})}
		onBackend(p, func(rank int, be kernels.Backend) kernels.Backend {
			switch rank {
			case a:
				return &sharing{Backend: be, shared: s, owner: true}
			case b:
				return &sharing{Backend: be, shared: s}
			}
			return be
		})
	}
}

// shared is the buffer of two ranks.
type shared struct {
	n, elements int
	turn        sync.Mutex
	ready       chan struct{} // closed when buf is set
	buf         kernels.Buffer
}

// sharing is a backend one of whose buffers is shared.
type sharing struct {
	kernels.Backend
	*shared
	owner bool
	seen  int // allocations of the size
}

func (s *sharing) Alloc(n int) (kernels.Buffer, error) {
	if n < s.elements {
		return s.Backend.Alloc(n)
	}
	s.seen++
	switch {
	case s.seen != s.n+1:
		return s.Backend.Alloc(n)
	case !s.owner:
		<-s.ready
		return s.buf, nil
	}
	buf, err := s.Backend.Alloc(n)
	s.buf = buf
	close(s.ready)
	return buf, err
}

func (s *sharing) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.Backend.AdamW(w, m, v, g, p)
}

func (s *sharing) SGD(w, b, g kernels.Tensor, p kernels.SGDParams) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.Backend.SGD(w, b, g, p)
}

func (s *sharing) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.Backend.Hash(d, x, at)
}

func (s *sharing) Read(dst []float32, src kernels.Tensor) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.Backend.Read(dst, src)
}

// updates replaces an optimizer's update of flat ranges.
type updates struct {
	optim.Optimizer
	update func(inner optim.Optimizer, be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step)
}

func (u *updates) Update(be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step) {
	u.update(u.Optimizer, be, w, g, moments, decays, s)
}

// FirstHalf updates only the first half of the elements that each call of the
// optimizer is given, as a loop bound of rows instead of elements does.
func FirstHalf() Fault {
	return func(p *launch.Parts) {
		onOptimizer(p, func(_ int, o optim.Optimizer) optim.Optimizer {
			return &updates{o, func(inner optim.Optimizer, be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step) {
				n := w.Len() / 2
				var half []kernels.Tensor
				for _, m := range moments {
					half = append(half, m.Range(0, n))
				}
				inner.Update(be, w.Range(0, n), g.Range(0, n), half, decays, s)
			}}
		})
	}
}

// Counter shifts the step number that the optimizer of one rank (of all, if
// rank is negative) believes in.
func Counter(rank, by int) Fault {
	return func(p *launch.Parts) {
		onOptimizer(p, func(r int, o optim.Optimizer) optim.Optimizer {
			if rank >= 0 && r != rank {
				return o
			}
			return &updates{o, func(inner optim.Optimizer, be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step) {
				s.T += by
				inner.Update(be, w, g, moments, decays, s)
			}}
		})
	}
}

// sourceFunc is a source made of a function.
type sourceFunc func(step, worker, workers int) ([]data.Sequence, []int64)

func (f sourceFunc) Sequences(step, worker, workers int) ([]data.Sequence, []int64) {
	return f(step, worker, workers)
}

// SameShard makes one rank read the shard of rank 0: the logical workers that
// rank 0 of size ranks computes.
func SameShard(rank, size int) Fault {
	return func(p *launch.Parts) {
		onSource(p, func(r int, s train.Source) train.Source {
			if r != rank {
				return s
			}
			return sourceFunc(func(step, worker, workers int) ([]data.Sequence, []int64) {
				return s.Sequences(step, worker%(workers/size), workers)
			})
		})
	}
}

// DropSequence loses the last sequence of one logical worker in every step.
func DropSequence(worker int) Fault {
	return func(p *launch.Parts) {
		onSource(p, func(_ int, s train.Source) train.Source {
			return sourceFunc(func(step, w, workers int) ([]data.Sequence, []int64) {
				seqs, ids := s.Sequences(step, w, workers)
				if n := len(seqs); w == worker && n > 0 {
					return seqs[:n-1], ids[:n-1]
				}
				return seqs, ids
			})
		})
	}
}
