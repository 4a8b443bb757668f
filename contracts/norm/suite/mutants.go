package suite

import (
	"context"
	"math"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// breaks adds a fault to the infinities of a case's test run.
func breaks(f fault.Fault) func(*suite.Case) { return fault.Into(contract.Test, f) }

// hidden plants the largest float32 instead of an infinity in the test run.
func hidden(c *suite.Case) {
	r := c.Runs[contract.Test]
	r.Key, r.Parts = "", plant(*r.Config, math.MaxFloat32)
	c.Runs[contract.Test] = r
}

// agreedUpon breaks test and control alike, as an error of the trainer does
// that no plan escapes.
func agreedUpon(f fault.Fault) func(*suite.Case) {
	return func(c *suite.Case) {
		fault.Into(contract.Test, f)(c)
		fault.Into(contract.Control, f)(c)
	}
}

// byData gives the optimizer the learning rate of the step of the data, in test
// and control alike.
func byData(c *suite.Case) {
	agreedUpon(fault.Rate(c.Runs[contract.Test].Config.Optimizer.At))(c)
}

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	const late = "nano dp=2" + lasts
	m := func(id, clause, on string, where suite.Place, change func(*suite.Case), says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-NORM-001." + clause, On: on, Break: change, Says: says}
	}
	return []suite.Mutant{
		m("norm-of-own-shard", "1", "odd dp=2,zero=3"+skips, at(1, 0, "norm of rank"), breaks(fault.LocalNorm()),
			"every rank clips by the norm of its own shard (sgl-project/SpecForge#663, pytorch/torchtitan#766)", "B099"),
		m("no-clip-no-norm", "1", "nano dp=2,zero=1"+unclipped, at(1, 0, "norm of rank"), breaks(fault.LocalNorm()),
			"where nothing is clipped every rank takes its own shard's norm: it decides alone what is finite"),
		m("another-clip", "1", "nano dp=8,zero=1"+skips, at(5, 0, "coefficient"), breaks(fault.OnConfig(func(rank int, c *spec.Config) {
			if rank == 5 {
				c.Optimizer.Clip /= 2
			}
		})), "one rank clips at another norm, as after a resume that broadcast tensors only (horovod/horovod#526)", "B010"),
		m("norm-lost-on-one-rank", "1", "odd dp=4"+skips, at(2, 0, "norm of rank"), breaks(lostOn(2)),
			"one rank takes the norm of a finite gradient for one that is not finite"),
		m("coefficient-applied-imprecisely", "1", "odd dp=2,zero=3"+skips, at(1, 0, "did not apply the coefficient"), breaks(fault.OnUpdate(func(u *fault.Update) {
			if u.Rank == 1 {
				u.Step.Coef *= 1 + imprecise
			}
			u.Do()
		})), "one rank records the coefficient and clips its shard by one that is a few millionths larger"),

		m("coefficient-of-another-norm", "1", "odd dp=4"+skips, at(some, 0, "does not follow from its norm"), breaks(fault.OnConfig(func(_ int, c *spec.Config) { c.Optimizer.Clip /= 2 })),
			"all ranks clip by one coefficient, which is that of another norm to clip at"),
		m("norm-of-first-shard", "2", "odd dp=2,tp=2,zero=2"+skips, at(some, 0, "norm of rank"), breaks(normOfFirst()),
			"all ranks clip by the norm of rank 0's shard: they agree, and the direction stays right"),
		m("norm-summed-twice", "2", "odd dp=4"+skips, at(some, 0, "norm of rank"), agreedUpon(fault.OnCalls(fault.Norms, fault.Twice)),
			"squares that are summed already are summed over the replicas again (pytorch/pytorch#88955)", "B098"),

		m("one-rank-steps", "3", "odd dp=4"+skips, at(2, 1, "counter"), breaks(stepAnyway(2)),
			"the decision to skip is one rank's own: it steps where the others do not (ecmwf/WeatherGenerator#2724)", "B011"),
		m("skipped-step-counted", "3", "odd dp=4"+skips, at(some, 1, "counter"), agreedUpon(countSkipped(1)),
			"the step counter moves on a skipped step, on all ranks and on the single worker (huggingface/accelerate#999)", "B014"),

		m("moments-decay-on-a-skipped-step", "3", "odd dp=4"+skips, at(2, 1, "m of rank"), breaks(moving(2, func(s parallel.Shard) kernels.Tensor { return s.M[0] })),
			"one rank's first moments decay in a step that it skips, and nothing else"),
		m("weights-move-on-a-skipped-step", "3", "odd dp=4"+skips, at(2, 1, "weight of rank"), breaks(moving(2, func(s parallel.Shard) kernels.Tensor { return s.W })),
			"the same of its weights"),
		m("schedule-moves-by-data", "4", "odd dp=2,zero=3"+skips, at(some, 2, ""), byData,
			"the learning rate moves on a skipped step, on all ranks and on the single worker (huggingface/accelerate#963)", "B014"),
		m("skipped-step-corrected-for", "4", "nano dp=2,pp=2"+skips, at(some, 1, "counter"), breaks(countSkipped(1)),
			"the bias correction of the next step counts the skipped one"),

		m("infinity-hidden", "5", "nano dp=8,zero=1"+skips, at(some, 1, "layers.0.mlp.down_proj"), hidden,
			"a rank replaces infinities in its gradient by the largest float, as nan_to_num does: the step is taken"),

		m("coefficient-logged-not-applied", "6", "odd dp=4"+skips, at(0, 0, "of the single worker"), agreedUpon(fault.OnUpdate(func(u *fault.Update) {
			u.Step.Coef = 1
			u.Do()
		})), "all ranks and the single worker record the coefficient and update by the gradient as it is"),
		m("rate-applied-is-another", "6", "nano dp=2,pp=2"+skips, at(0, 0, "weight of the single worker"), agreedUpon(fault.OnUpdate(func(u *fault.Update) {
			u.Step.LR *= 1.001
			u.Do()
		})), "the applied learning rate is a thousandth above the recorded one, everywhere"),
		m("second-moment-applied-is-another", "6", "odd dp=4"+skips, at(0, 0, "v of the single worker"), agreedUpon(fault.OnUpdate(func(u *fault.Update) {
			u.Do()
			u.Backend.Scale(u.Moments[1], u.Moments[1], 1.001)
		})), "second moments are left a thousandth too large, everywhere: the weights follow a step later"),
		m("rate-of-one-rank", "6", "odd dp=4"+skips, at(3, 0, "learning rate of rank"), breaks(fault.LearningRate(3, 1.001)),
			"the last rank's learning rate is a thousandth above the schedule's"),
		m("norms-decay", "6", "odd dp=2,zero=3"+skips, at(0, 0, "norm.weight"), agreedUpon(fault.OnUpdate(func(u *fault.Update) {
			u.Decays = true
			u.Do()
		})), "vectors are decayed too, everywhere"),

		m("skips-stick-after-three", "3", late, at(some, 12, "counter"), breaks(sticking(3)),
			"the number of values that are not finite is never 0 again once three steps were skipped"),
		m("schedule-moves-after-three-skips", "4", late, at(some, 9, "counter"), agreedUpon(countSkipped(3)),
			"from the third skipped step on, skipped steps are counted, everywhere"),
		m("second-correction-ends", "6", late, at(0, 30, "weight of the single worker"), agreedUpon(fault.OnUpdate(func(u *fault.Update) {
			if u.Step.T >= 24 {
				u.Backend = uncorrected{u.Backend}
			}
			u.Do()
		})), "the correction of the second moment is 1 after 24 steps, everywhere"),
		m("rate-wrong-past-the-horizon", "6", late, at(0, 52, "weight of the single worker"), agreedUpon(fault.OnUpdate(func(u *fault.Update) {
			if u.Step.T >= 2*horizon {
				u.Step.LR *= 1.01
			}
			u.Do()
		})), "beyond twice the horizon the learning rate rises by a hundredth, everywhere"),
	}
}

// uncorrected is a backend whose AdamW does not correct the second moment.
type uncorrected struct{ kernels.Backend }

func (b uncorrected) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	p.C2 = 1
	b.Backend.AdamW(w, m, v, g, p)
}

// sticking lets the sum of squares count an infinity for ever once n steps' sums have
// had some.
func sticking(n int) fault.Fault {
	return func(p *launch.Parts) {
		var seen fault.PerRank[int]
		fault.OnCalls(fault.Norms, func(c *fault.Call) error {
			err := c.Do()
			sum, skips := (kernels.SquareSum)(c.Ints), seen.At(c.Rank)
			if err == nil && sum[kernels.SquareInf]+sum[kernels.SquareNaN] > 0 {
				*skips++
			}
			if *skips >= n {
				c.Ints[kernels.SquareInf]++
			}
			return err
		})(p)
	}
}

// imprecise is a relative error of a coefficient: three times what the roundings of a
// first moment explain with odd's beta1.
const imprecise = 4e-6

// moving halves what which selects of one rank's state when the gradients of the first
// step to be skipped are reduced.
func moving(rank int, which func(parallel.Shard) kernels.Tensor) fault.Fault {
	return fault.OnUpdater(rank, func(be kernels.Backend, u parallel.Updater) parallel.Updater { return &restless{u, be, which, 0} })
}

type restless struct {
	parallel.Updater
	be    kernels.Backend
	which func(parallel.Shard) kernels.Tensor
	step  int
}

func (r *restless) Begin(step int) {
	r.step = step
	r.Updater.Begin(step)
}

func (r *restless) Finish(ctx context.Context) error {
	err := r.Updater.Finish(ctx)
	for _, s := range r.Shards() {
		if x := r.which(s); r.step == skipped {
			r.be.Scale(x, x, 0.5)
		}
	}
	return err
}

// lostOn makes one rank's sum of squares count a value that is not a number.
func lostOn(rank int) fault.Fault {
	return fault.OnCalls(fault.Norms, func(c *fault.Call) error {
		err := c.Do()
		if c.Rank == rank {
			c.Ints[kernels.SquareNaN]++
		}
		return err
	})
}

// normOfFirst makes the norm one of the first rank's squares alone, on all ranks.
func normOfFirst() fault.Fault {
	return fault.OnCalls(fault.Norms, func(c *fault.Call) error {
		if c.Rank > 0 {
			clear(c.Ints)
		}
		return c.Do()
	})
}

// stepAnyway makes one rank take a norm that is not finite for 0, so that it
// steps where the others do not.
func stepAnyway(rank int) fault.Fault {
	return fault.OnCalls(fault.Norms, func(c *fault.Call) error {
		err := c.Do()
		if sum := (kernels.SquareSum)(c.Ints); err == nil && c.Rank == rank && sum[kernels.SquareInf]+sum[kernels.SquareNaN] > 0 {
			clear(c.Ints)
		}
		return err
	})
}

// countSkipped makes all ranks count skipped steps as optimizer steps, from the n-th
// on.
func countSkipped(n int) fault.Fault {
	return func(p *launch.Parts) {
		var counts, skips fault.PerRank[int]
		fault.OnCounter(func(rank, taken int) int {
			count, skipped := counts.At(rank), skips.At(rank)
			if taken == *count {
				if *skipped++; *skipped >= n {
					taken++
				}
			}
			*count = taken
			return taken
		})(p)
	}
}
