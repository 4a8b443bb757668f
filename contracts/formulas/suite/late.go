package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// lately is how many steps a late case takes.
const lately = 4

// skipped is how many steps took no update before a late case begins: the counter is
// not the step.
const skipped = 3

// The places of late cases. At each ends something that a number is kept in, or could
// be: a table, a byte, 16 bits, the integers of a float32, the steps that a run may have.
var (
	hundredth = after(100)
	byteFull  = after(254 + skipped)
	kilo      = after(1000)
	half      = after(1<<15 - 2 + skipped)
	short     = after(1<<16 - 2 + skipped)
	million   = after(1_000_003)
	single    = after(1<<24 - 2 + skipped)
	farthest  = after(spec.MaxSteps - lately)
)

func after(step int) suite.Later { return suite.Later{Step: step, Taken: step - skipped} }

// late are cases that begin at a late step, of a small model. Their schedules end
// before the place, at it, and after it, or are still warming up; betas are so near to
// 1 that corrections are none where they can be.
func late() []fixture {
	adamW := func(at suite.Later, beta1, beta2 float64, warmup, horizon int) fixture {
		return fixture{config: "nano", suffix: at.Suffix(), at: at, clauses: onward, change: func(c *spec.Config) {
			tiny(c)
			o := &c.Optimizer
			o.Beta1, o.Beta2, o.Warmup, o.Horizon = beta1, beta2, warmup, horizon
		}}
	}
	plain := func(at suite.Later, warmup, horizon int) fixture {
		return fixture{config: "nano", suffix: " sgd" + at.Suffix(), at: at, clauses: moving, change: func(c *spec.Config) {
			tiny(c)
			o := &c.Optimizer
			*o = optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.8, Decay: 0.05, Clip: o.Clip, Warmup: warmup, Horizon: horizon, MinLR: 5e-4}
		}}
	}
	return []fixture{
		adamW(hundredth, 0.98, 0.99, 3, hundredth.Taken+2),
		adamW(byteFull, 0.99, 0.999, 20, 2000),
		adamW(kilo, 0.99, 0.9995, 2000, 4000),
		adamW(short, 0.999, 0.99999, 100, 200_000),
		adamW(million, 0.9999, 0.999999, 2000, 500_000),
		adamW(single, 0.999, 0.9999999, 20_000_000, 0),
		adamW(farthest, 0.9999, 0.9999999, 2000, farthest.Taken+2),
		plain(half, 50, half.Taken+2), plain(single, 2000, 40_000_000),
	}
}

// onward and moving are the clauses that a run which goes on is evidence for, with its
// activations and without: its initial weights it does not have.
var (
	moving = []string{"C-MODEL-001.3", "C-MODEL-001.4"}
	onward = []string{values, "C-MODEL-001.3", "C-MODEL-001.4"}
)

// tiny is a small model with few tokens, which clips in some steps and not in others.
func tiny(c *spec.Config) {
	small(c)
	c.Sequences, c.Model.SeqLen = 3, 5
	c.Optimizer.LR, c.Optimizer.Clip, c.Optimizer.MinLR = 3e-3, 0.9, 5e-4
}
