// Package optim updates parameters: AdamW and SGD over ranges of flat buffers,
// global-norm clipping, and the learning-rate schedule in optimizer steps.
package optim

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/num"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Step is what one optimizer step has in common for all elements.
type Step struct {
	T    int     // optimizer steps taken before this one; AdamW's t is T+1
	LR   float64 // from Config.At(T)
	Coef float64 // factor of the gradient, from ClipCoef
}

// Optimizer updates elements independently of each other, so any cut of the
// flat buffers gives the same bits. It has no state of its own: moments are the
// caller's buffers, and the counter is the caller's.
type Optimizer interface {
	// Moments names the moments it keeps, one value of each per element.
	Moments() []string
	// Update applies one step to elements of equal decay rule: w, g and the
	// moments are flat and of equal length.
	Update(be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s Step)
}

// New makes the optimizer of a valid configuration.
func New(c Config) (Optimizer, error) {
	switch c.Name {
	case "adamw":
		return adamW{c}, nil
	case "sgd":
		return sgd{c}, nil
	}
	return nil, fmt.Errorf("optimizer %q: known are adamw, sgd", c.Name)
}

type adamW struct{ Config }

func (adamW) Moments() []string { return []string{trace.MomentM, trace.MomentV} }

func (a adamW) Update(be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s Step) {
	p := kernels.AdamWParams{LR: s.LR, Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Eps, Coef: s.Coef,
		C1: 1 - num.PowInt(a.Beta1, s.T+1), C2: 1 - num.PowInt(a.Beta2, s.T+1)}
	if decays {
		p.Decay = a.decay()
	}
	be.AdamW(w, moments[0], moments[1], g, p)
}

type sgd struct{ Config }

func (sgd) Moments() []string { return []string{trace.Momentum} }

func (o sgd) Update(be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s Step) {
	p := kernels.SGDParams{LR: s.LR, Momentum: o.Momentum, Coef: s.Coef}
	if decays {
		p.Decay = o.decay()
	}
	be.SGD(w, moments[0], g, p)
}

// Norm is the global gradient norm of an exact sum of squares.
func Norm(s *kernels.SquareSum) float64 { return math.Sqrt(s.Sum()) }

// ClipCoef is the factor that brings a gradient of the given norm down to clip:
// clip/(norm+1e-6) where that is below 1, else 1; clip 0 never clips. The
// factor is rounded by the backend that applies it.
func ClipCoef(norm, clip float64) float64 {
	if clip <= 0 {
		return 1
	}
	if c := clip / (norm + 1e-6); c < 1 {
		return c
	}
	return 1
}
