package suite

import (
	"strconv"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
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

// lateScalars break clause 3 at a late step alone.
func lateScalars() []suite.Mutant {
	return []suite.Mutant{
		faulty("counter-of-16-bits", onLate(short), at(short.Step+1, "counter"), fault.OnCounter(func(_, taken int) int { return int(uint16(taken)) }),
			"the counter is kept in 16 bits and begins anew"),
		faulty("counter-of-float32", onLate(single), at(single.Step+2, "counter"), fault.OnCounter(func(_, taken int) int { return int(float32(taken)) }),
			"the counter is kept in a float32, as that of torch.optim.AdamW is: from 2^24 on it stays"),
		faulty("counter-stays-from-96", onLate(hundredth), at(hundredth.Step, "counter"), fault.OnCounter(func(_, taken int) int {
			if taken > 96 {
				return taken - 1
			}
			return taken
		}), "from step 96 on the counter counts nothing", "B104"),
	}
}

// lateUpdates break clause 4 at a late step alone, and leave the scalars as they are.
func lateUpdates() []suite.Mutant {
	from := func(taken int, change func(u *fault.Update)) fault.Fault {
		return fault.OnUpdate(func(u *fault.Update) {
			if u.Step.T >= taken {
				change(u)
			}
			u.Do()
		})
	}
	adamW := func(taken int, change func(p *kernels.AdamWParams)) fault.Fault {
		return from(taken, func(u *fault.Update) {
			u.Backend = &broken{Backend: u.Backend, adamW: func(be kernels.Backend, w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
				change(&p)
				be.AdamW(w, m, v, g, p)
			}}
		})
	}
	// A run that goes on from another schedule's checkpoint is refused, so the update
	// alone has another one.
	scheduled := func(on string, narrow func(o *optim.Config)) fault.Fault {
		o := optimizer(on)
		narrow(&o)
		return from(0, func(u *fault.Update) { u.Step.LR = o.At(u.Step.T) })
	}
	const sgd = "nano sgd from step "
	return []suite.Mutant{
		faulty("rate-grows-from-96", onLate(hundredth), at(hundredth.Step, "weight after"), from(96, func(u *fault.Update) { u.Step.LR *= 1.01 }),
			"from step 96 on the update has a learning rate that is a hundredth more than is recorded"),
		faulty("horizon-of-16-bits", onLate(short), at(short.Step, "weight after"), scheduled(onLate(short), func(o *optim.Config) { o.Horizon = int(uint16(o.Horizon)) }),
			"the horizon is kept in 16 bits: past 65,535 the rate has long ended"),
		faulty("warm-up-of-float16", onLate(single), at(single.Step, "weight after"), scheduled(onLate(single), func(o *optim.Config) { o.Warmup = min(o.Warmup, 65504) }),
			"the warm-up is at most what a float16 holds"),
		faulty("second-correction-ends-at-65536", onLate(short), at(short.Step+2, "weight after"), adamW(1<<16, func(p *kernels.AdamWParams) { p.C2 = 1 }),
			"the second moment is corrected in the first 65,536 steps alone"),
		faulty("first-correction-begins-anew", onLate(byteFull), at(byteFull.Step+2, "weight after"), adamW(1<<8, func(p *kernels.AdamWParams) { p.C1 = 1 - p.Beta1 }),
			"the first moment is corrected, past 256 steps, as in the first one"),
		faulty("decay-ends", onLate(farthest), at(farthest.Step, "weight after"), from(1<<20, func(u *fault.Update) { u.Decays = false }),
			"past a million steps nothing decays"),
		faulty("all-decay-late", sgd+strconv.Itoa(half.Step), at(half.Step+2, "momentum after"), from(1<<15, func(u *fault.Update) { u.Decays = true }),
			"from step 32,768 on norm weights decay too"),
		faulty("another-coefficient-late", sgd+strconv.Itoa(single.Step), at(single.Step+2, "momentum after"), from(1<<24, func(u *fault.Update) { u.Step.Coef *= 1.001 }),
			"from step 2^24 on the gradient is clipped at another norm than is recorded"),
	}
}

// onLate is the case of AdamW at a place.
func onLate(p suite.Later) string { return "nano" + p.Suffix() }

// optimizer is that of a late case.
func optimizer(on string) optim.Config {
	for _, c := range list(suite.Options{}) {
		if c.Name == on {
			return c.Runs[contract.Test].Config.Optimizer
		}
	}
	return optim.Config{} // a mutant of no case is refused before it runs
}
