package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// The cases of an optimizer whose numbers are those that mean "none".
const (
	onBare    = "nano bare"
	onBareSGD = "nano sgd bare"
	onEnding  = "nano sgd bare to a rate of 0"
)

// bare are cases of a small model whose optimizer has no decay, clips nothing, warms up
// in no step, and either keeps its rate or ends at a rate of 0. SGD says no decay in both
// ways.
func bare() []fixture {
	with := func(on string, o optim.Config) fixture {
		return fixture{config: "nano", suffix: on[len("nano"):], clauses: onward, change: func(c *spec.Config) {
			tiny(c)
			o.Beta1, o.Beta2, o.Eps = c.Optimizer.Beta1, c.Optimizer.Beta2, c.Optimizer.Eps
			c.Optimizer = o
		}}
	}
	return []fixture{
		with(onBare, optim.Config{Name: "adamw", LR: 3e-3, Momentum: 0.9, Decay: optim.NoDecay}),
		with(onBareSGD, optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.8, Decay: optim.NoDecay}),
		with(onEnding, optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.8, Horizon: 2}),
	}
}

// bareScalars break clause 3 where a number means none.
func bareScalars() []suite.Mutant {
	o := func(change func(o *optim.Config)) fault.Fault {
		return believes(func(c *spec.Config) { change(&c.Optimizer) })
	}
	return []suite.Mutant{
		faulty("no-clip-clips-all", onBare, at(0, "coef"), o(func(o *optim.Config) { o.Clip = 1e-30 }), "a clip of 0 is a limit that every gradient exceeds"),
		faulty("no-horizon-is-a-horizon", onBareSGD, at(1, "lr"), o(func(o *optim.Config) { o.Horizon = o.Warmup + 1 }), "a horizon of 0 ends the schedule at once"),
		faulty("no-warm-up-is-one", onEnding, at(0, "lr"), o(func(o *optim.Config) { o.Warmup, o.Horizon = 2, 4 }), "a warm-up of 0 takes steps all the same"),
		faulty("least-rate-of-default", onEnding, at(1, "lr"), o(func(o *optim.Config) { o.MinLR = o.LR / 10 }), "a least rate of 0 is taken for a tenth of the peak"),
	}
}

// bareUpdates break clause 4 where a number means none.
func bareUpdates() []suite.Mutant {
	return []suite.Mutant{
		faulty("no-decay-is-minus-one", onBare, at(0, "weight after"), kernel(broken{adamW: func(be kernels.Backend, w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
			p.Decay = optim.NoDecay
			be.AdamW(w, m, v, g, p)
		}}), "the decay that says none is used as a decay"),
		faulty("no-decay-is-minus-one-of-sgd", onBareSGD, at(0, "momentum after"), fault.OnUpdate(func(u *fault.Update) {
			u.Backend = &undecayed{u.Backend}
			u.Do()
		}), "the decay that says none is used as a decay"),
		faulty("no-decay-of-sgd-is-adamw's", onEnding, at(0, "momentum after"), believes(func(c *spec.Config) { c.Optimizer.Decay = 0.1 }), "SGD has AdamW's default of decay"),
	}
}

// undecayed is a backend of an optimizer that decays by its word for none.
type undecayed struct{ kernels.Backend }

func (b *undecayed) SGD(w, m, g kernels.Tensor, p kernels.SGDParams) {
	p.Decay = optim.NoDecay
	b.Backend.SGD(w, m, g, p)
}
