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
)

// mutants are broken runs, several per clause. What is broken is what all plans
// share.
func mutants() []suite.Mutant {
	var out []suite.Mutant
	for clause, list := range [][]mutant{initials(), forward(), backward(), scalarsRecorded(), updates()} {
		for _, m := range list {
			out = append(out, suite.Mutant{ID: m.id, Clause: "C-MODEL-001." + []string{"1", "2", "2", "3", "4"}[clause], On: m.on,
				Break: fault.Into(contract.Test, m.fault), Says: m.says})
		}
	}
	return out
}

// mutant is a fault on a case.
type mutant struct {
	id, on string
	fault  fault.Fault
	says   string
}

// initials break clause 1.
func initials() []mutant {
	return []mutant{
		{"deviation-of-default", onNano, believes(func(c *spec.Config) { c.Model.InitStd = 0.02 }),
			"initial weights have the default deviation, whatever is configured"},
		{"another-seed", onOdd, believes(func(c *spec.Config) { c.Seed++ }), "the generator is given the next seed"},
		{"biases-from-zero", onOdd, filled(func(name string) bool { return strings.HasSuffix(name, "bias") }, 0),
			"biases begin at 0, whatever is configured"},
	}
}

// forward break clause 2 in the forward pass.
func forward() []mutant {
	return []mutant{
		{"rotation-the-other-way", onNano, kernel(broken{rope: func(be kernels.Backend, x, cos, sin kernels.Tensor, inverse bool) { be.Rope(x, cos, sin, !inverse) }}),
			"queries and keys are rotated by the negative angle, and their gradients too"},
		{"theta-of-default", onOdd, believes(func(c *spec.Config) { c.Model.RopeTheta = 10000 }), "the rotation has the default base, whatever is configured"},
		{"scale-of-wider-heads", onNano, scaled(func(dim int) float64 { return math.Sqrt(float64(dim) / float64(dim+1)) }),
			"scores are scaled by 1/sqrt(d+1), in both passes"},
		{"mask-off-by-one", onNano, kernel(broken{attended: lookAhead}), "every token attends to the next one"},
		{"eps-of-default", onOdd, believes(func(c *spec.Config) { c.Model.NormEps = 1e-5 }), "norms have the default epsilon, whatever is configured"},
		{"eps-of-final-norm", onOdd, finalEps(1e-5), "the final norm alone has the default epsilon"},
		{"output-bias-dropped", onOdd, kernel(broken{residual: func(be kernels.Backend, dst, x, y, _ kernels.Tensor) { be.Residual(dst, x, y, kernels.Tensor{}) }}),
			"the biases of the output and the down projection are not added"},
		{"mean-of-means", onOdd, kernel(broken{share: ofMicroBatch(4)}),
			"the loss gradient is a mean over each micro-batch's valid tokens, and those means' mean (huggingface/transformers#34191)"},
	}
}

// backward break clause 2 in the backward pass.
func backward() []mutant {
	return []mutant{
		{"key-term-dropped", onNano, kernel(broken{terms: func(t []kernels.Term) []kernels.Term {
			if len(t) == 3 {
				return []kernels.Term{t[0], t[2]}
			}
			return t
		}}), "the gradient of a block's input lacks what comes through the keys"},
		{"slope-of-gate-dropped", onNano, kernel(broken{swigluGrad: noSlope}), "the gate's derivative is sigmoid(z), not its product's"},
		{"residual-gradient-dropped", onNano, kernel(broken{normGrad: func(be kernels.Backend, dx, dw, dy, x, rstd, w, _ kernels.Tensor) {
			be.RMSNormGrad(dx, dw, dy, x, rstd, w, kernels.Tensor{})
		}}), "the gradient does not pass beside the branches of a block"},
		{"bias-gradient-dropped", onOdd, kernel(broken{columnSum: func(be kernels.Backend, dst, x kernels.Tensor) {
			if x.Cols != 40 { // the width of odd's queries
				be.ColumnSum(dst, x)
			}
		}}), "the gradient of the queries' bias stays 0"},
		{"tied-gradient-halved", onOdd, halfTied(), "the head's share of a tied embedding's gradient counts half"},
		{"last-token-without-gradient", onNano, kernel(broken{embeddedGrad: func(be kernels.Backend, dtable, dx kernels.Tensor, tokens []int32, first int) {
			n := max(len(tokens)-1, 0)
			dx.Rows = n
			be.EmbeddingGrad(dtable, dx, tokens[:n], first)
		}}), "the last token of every micro-batch gives its embedding no gradient"},
	}
}

// scalarsRecorded break clause 3.
func scalarsRecorded() []mutant {
	return []mutant{
		{"squares-counted-twice", onOdd, kernel(broken{squares: func(be kernels.Backend, acc *kernels.SquareSum, x kernels.Tensor) {
			be.SumSquares(acc, x)
			be.SumSquares(acc, x)
		}}), "every square enters the norm twice, as a replica's does (pytorch/pytorch#88955)"},
		{"clip-at-another-norm", onNano, believes(func(c *spec.Config) { c.Optimizer.Clip *= 1.001 }), "the gradient is clipped at another norm than is configured"},
		{"warm-up-off-by-one", onNano, believes(func(c *spec.Config) { c.Optimizer.Warmup++ }), "the warm-up takes a step more"},
		{"counter-stays", onSGD, fault.IdleCounter(0), "the step counter stays at 0, and with it the learning rate"},
	}
}

// updates break clause 4, and leave the scalars as they are.
func updates() []mutant {
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
	return []mutant{
		{"coefficient-not-applied", onNano, step(func(u *fault.Update) { u.Step.Coef = 1 }), "the coefficient is recorded, the gradient is not clipped"},
		{"another-rate-applied", onNano, step(func(u *fault.Update) { u.Step.LR *= 1 + 1e-3 }), "the update has another learning rate than is recorded"},
		{"rate-of-step-before", onSGD, previousRate(), "the update has the learning rate of the step before"},
		{"correction-off-by-one", onNano, step(func(u *fault.Update) { u.Step.T++ }), "the bias correction counts a step more"},
		{"no-bias-correction", onOdd, adamW(func(p *kernels.AdamWParams) { p.C1, p.C2 = 1, 1 }), "moments are used without bias correction"},
		{"betas-of-default", onOdd, adamW(func(p *kernels.AdamWParams) { p.Beta1, p.Beta2 = 0.9, 0.95 }), "moments decay by the default betas, whatever is configured"},
		{"complement-of-rounded-beta", onOdd, adamW(func(p *kernels.AdamWParams) { p.Beta2 = float64(float32(p.Beta2)) }),
			"1-beta is taken of the rounded beta, as canonical arithmetic 1 did"},
		{"adam-eps-of-default", onOdd, adamW(func(p *kernels.AdamWParams) { p.Eps = 1e-8 }), "the denominator has the default epsilon, whatever is configured"},
		{"decay-on-norms", onOdd, step(func(u *fault.Update) { u.Decays = true }), "norm weights and biases decay too"},
		{"no-decay", onSGD, step(func(u *fault.Update) { u.Decays = false }), "nothing decays"},
		{"decay-in-the-gradient", onNano, kernel(broken{adamW: decayedGradient}), "the decay is added to the gradient and enters the moments (L2 in place of AdamW)"},
		{"momentum-of-default", onSGD, believes(func(c *spec.Config) { c.Optimizer.Momentum = 0.9 }), "the momentum is the default, whatever is configured"},
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
