package suite

import (
	"math"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// The cases that mutants are made of.
const (
	onNano = "nano adamw"
	onOdd  = "odd adamw biased"
	onSGD  = "nano sgd"
	onLong = "nano of 72 steps"
	onWide = "odd of 140 tokens"
)

// mutants are broken runs, several per clause. What is broken is what all plans
// share.
func mutants() []suite.Mutant {
	var out []suite.Mutant
	for _, of := range []struct {
		clause string
		list   []suite.Mutant
	}{
		{"1", initials()}, {"2", forward()}, {"2", backward()}, {"3", scalarsRecorded()}, {"4", updates()},
		{"3", lateScalars()}, {"4", lateUpdates()}, {"3", bareScalars()}, {"4", bareUpdates()},
	} {
		for _, m := range of.list {
			m.Clause = "C-MODEL-001." + of.clause
			out = append(out, m)
		}
	}
	return out
}

// faulty is a fault on a case, to be named at a place, and the rows of the
// catalogue that it stands for.
func faulty(id, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
	return suite.Mutant{ID: id, On: on, At: where, Break: fault.Into(contract.Test, f), Says: says, Rows: rows}
}

// at is a place of the only rank.
func at(step int, naming string) suite.Place { return suite.At(0, step, naming) }

// begin is a place before the first step, last one in the step whose activations are
// recorded.
func begin(naming string) suite.Place { return at(-1, naming) }
func last(naming string) suite.Place  { return at(steps-1, naming) }

// initials break clause 1.
func initials() []suite.Mutant {
	return []suite.Mutant{
		faulty("deviation-of-default", onNano, begin("embed_tokens"), believes(func(c *spec.Config) { c.Model.InitStd = 0.02 }),
			"initial weights have the default deviation, whatever is configured"),
		faulty("another-seed", onOdd, begin("embed_tokens"), believes(func(c *spec.Config) { c.Seed++ }), "the generator is given the next seed"),
		faulty("seed-of-32-bits", onLong, begin("embed_tokens"), believes(func(c *spec.Config) { c.Seed = uint64(uint32(c.Seed)) }),
			"the generator is given the lower half of the seed"),
		faulty("biases-from-zero", onOdd, begin("layers.0.self_attn.q_proj.bias"), filled(func(name string) bool { return strings.HasSuffix(name, "bias") }, 0),
			"biases begin at 0, whatever is configured"),
	}
}

// forward break clause 2 in the forward pass.
func forward() []suite.Mutant {
	return []suite.Mutant{
		faulty("rotation-the-other-way", onNano, last("block.0/attention"), kernel(broken{rope: func(be kernels.Backend, x, cos, sin kernels.Tensor, inverse bool) { be.Rope(x, cos, sin, !inverse) }}),
			"queries and keys are rotated by the negative angle, and their gradients too"),
		faulty("angles-stop-at-64", onWide, last("block.0/attention"), kernel(broken{rope: stopped(64)}),
			"positions from 64 on all have the angles of the last one before, in both directions"),
		faulty("theta-of-default", onOdd, last("block.0/attention"), believes(func(c *spec.Config) { c.Model.RopeTheta = 10000 }), "the rotation has the default base, whatever is configured"),
		faulty("scale-of-wider-heads", onNano, last("block.0/attention"), scaled(func(dim int) float64 { return math.Sqrt(float64(dim) / float64(dim+1)) }),
			"scores are scaled by 1/sqrt(d+1), in both passes"),
		faulty("mask-off-by-one", onNano, last("block.0/attention"), kernel(broken{attended: lookAhead}), "every token attends to the next one"),
		faulty("eps-of-default", onOdd, last("block.0/n1"), believes(func(c *spec.Config) { c.Model.NormEps = 1e-5 }), "norms have the default epsilon, whatever is configured"),
		faulty("eps-of-final-norm", onOdd, last("final/n"), finalEps(1e-5), "the final norm alone has the default epsilon"),
		faulty("output-bias-dropped", onOdd, last("block.0/mid"), kernel(broken{residual: func(be kernels.Backend, dst, x, y, _ kernels.Tensor) { be.Residual(dst, x, y, kernels.Tensor{}) }}),
			"the biases of the output and the down projection are not added"),
		faulty("mean-of-means", onOdd, last("final/dlogits"), kernel(broken{share: ofMicroBatch(4)}),
			"the loss gradient is a mean over each micro-batch's valid tokens, and those means' mean (huggingface/transformers#34191)", "B020"),
	}
}

// backward break clause 2 in the backward pass.
func backward() []suite.Mutant {
	return []suite.Mutant{
		faulty("key-term-dropped", onNano, last("block.3/dattn"), kernel(broken{terms: func(t []kernels.Term) []kernels.Term {
			if len(t) == 3 {
				return []kernels.Term{t[0], t[2]}
			}
			return t
		}}), "the gradient of a block's input lacks what comes through the keys"),
		faulty("slope-of-gate-dropped", onNano, last("block.3/dgate"), kernel(broken{swigluGrad: noSlope}), "the gate's derivative is sigmoid(z), not its product's"),
		faulty("residual-gradient-dropped", onNano, last("block.3/dmid"), kernel(broken{normGrad: func(be kernels.Backend, dx, dw, dy, x, rstd, w, _ kernels.Tensor) {
			be.RMSNormGrad(dx, dw, dy, x, rstd, w, kernels.Tensor{})
		}}), "the gradient does not pass beside the branches of a block"),
		faulty("bias-gradient-dropped", onOdd, last("layers.0.self_attn.q_proj.bias"), kernel(broken{columnSum: func(be kernels.Backend, dst, x kernels.Tensor) {
			if x.Cols != 40 { // the width of odd's queries
				be.ColumnSum(dst, x)
			}
		}}), "the gradient of the queries' bias stays 0"),
		faulty("tied-gradient-halved", onOdd, last("embed_tokens"), halfTied(), "the head's share of a tied embedding's gradient counts half"),
		faulty("last-token-without-gradient", onNano, last("embed_tokens"), kernel(broken{embeddedGrad: func(be kernels.Backend, dtable, dx kernels.Tensor, tokens []int32, first int) {
			n := max(len(tokens)-1, 0)
			dx.Rows = n
			be.EmbeddingGrad(dtable, dx, tokens[:n], first)
		}}), "the last token of every micro-batch gives its embedding no gradient"),
	}
}

// scalarsRecorded break clause 3.
func scalarsRecorded() []suite.Mutant {
	return []suite.Mutant{
		faulty("squares-counted-twice", onOdd, at(0, "the norm is not"), kernel(broken{squares: func(be kernels.Backend, acc *kernels.SquareSum, x kernels.Tensor) {
			be.SumSquares(acc, x)
			be.SumSquares(acc, x)
		}}), "every square enters the norm twice, as a replica's does (pytorch/pytorch#88955)", "B098"),
		faulty("clip-at-another-norm", onNano, at(0, "coef"), believes(func(c *spec.Config) { c.Optimizer.Clip *= 1.001 }), "the gradient is clipped at another norm than is configured"),
		faulty("warm-up-off-by-one", onNano, at(0, "lr"), believes(func(c *spec.Config) { c.Optimizer.Warmup++ }), "the warm-up takes a step more"),
		faulty("counter-falls-past-the-horizon", onLong, at(2*distant-1, "counter"), fault.OnCounter(func(_, taken int) int {
			if taken == 2*distant {
				return distant / 2
			}
			return taken
		}), "at twice the horizon the counter goes back to half of it, and the learning rate with it"),
		faulty("counter-stays", onSGD, at(0, "counter"), fault.IdleCounter(0), "the step counter stays at 0, and with it the learning rate", "B104"),
	}
}

// updates break clause 4, and leave the scalars as they are.
func updates() []suite.Mutant {
	step := func(change func(u *fault.Update)) fault.Fault {
		return fault.OnUpdate(func(u *fault.Update) {
			change(u)
			u.Do()
		})
	}
	adamW := func(change func(p *kernels.AdamWParams)) fault.Fault {
		return kernel(broken{adamW: func(be kernels.Backend, w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
			change(&p)
			be.AdamW(w, m, v, g, p)
		}})
	}
	return []suite.Mutant{
		faulty("coefficient-not-applied", onNano, at(0, "m after"), step(func(u *fault.Update) { u.Step.Coef = 1 }), "the coefficient is recorded, the gradient is not clipped"),
		faulty("another-rate-applied", onNano, at(0, "weight after"), step(func(u *fault.Update) { u.Step.LR *= 1 + 1e-3 }), "the update has another learning rate than is recorded"),
		faulty("rate-of-step-before", onSGD, at(1, "weight after"), previousRate(), "the update has the learning rate of the step before"),
		faulty("correction-off-by-one", onNano, at(0, "weight after"), step(func(u *fault.Update) { u.Step.T++ }), "the bias correction counts a step more"),
		faulty("second-correction-ends", onLong, at(24, "weight after"), step(func(u *fault.Update) {
			if u.Step.T >= 24 {
				u.Backend = &broken{Backend: u.Backend, adamW: func(be kernels.Backend, w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
					p.C2 = 1
					be.AdamW(w, m, v, g, p)
				}}
			}
		}), "the second moment is corrected in the first 24 steps alone"),
		faulty("no-bias-correction", onOdd, at(0, "weight after"), adamW(func(p *kernels.AdamWParams) { p.C1, p.C2 = 1, 1 }), "moments are used without bias correction"),
		faulty("betas-of-default", onOdd, at(0, "m after"), adamW(func(p *kernels.AdamWParams) { p.Beta1, p.Beta2 = 0.9, 0.95 }), "moments decay by the default betas, whatever is configured"),
		faulty("complement-of-rounded-beta", onOdd, at(0, "v after"), adamW(func(p *kernels.AdamWParams) { p.Beta2 = float64(float32(p.Beta2)) }),
			"1-beta is taken of the rounded beta, as canonical arithmetic 1 did"),
		faulty("adam-eps-of-default", onOdd, at(0, "weight after"), adamW(func(p *kernels.AdamWParams) { p.Eps = 1e-8 }), "the denominator has the default epsilon, whatever is configured"),
		faulty("decay-on-norms", onOdd, at(0, "layers.0.input_layernorm.weight"), step(func(u *fault.Update) { u.Decays = true }), "norm weights and biases decay too"),
		faulty("no-decay", onSGD, at(0, "momentum after"), step(func(u *fault.Update) { u.Decays = false }), "nothing decays"),
		faulty("decay-in-the-gradient", onNano, at(0, "m after"), kernel(broken{adamW: decayedGradient}), "the decay is added to the gradient and enters the moments (L2 in place of AdamW)"),
		faulty("momentum-of-default", onSGD, at(1, "momentum after"), believes(func(c *spec.Config) { c.Optimizer.Momentum = 0.9 }), "the momentum is the default, whatever is configured"),
	}
}

// finalEps is the epsilon of the final norm of a model of four blocks.
func finalEps(eps float64) fault.Fault {
	return func(p *launch.Parts) {
		calls := 0 // of the only rank, in one run
		kernel(broken{eps: func(configured float64) float64 {
			if calls++; calls%9 == 0 {
				return eps
			}
			return configured
		}})(p)
	}
}

// previousRate applies the learning rate of the step before.
func previousRate() fault.Fault {
	return func(p *launch.Parts) {
		var rates []float64 // by step, of the only rank
		fault.OnUpdate(func(u *fault.Update) {
			if u.Step.T == len(rates) {
				rates = append(rates, u.Step.LR)
			}
			u.Step.LR = rates[max(u.Step.T-1, 0)]
			u.Do()
		})(p)
	}
}
