// Package formulas is contract C-MODEL-001: what a step computes is what the
// formulas of the model and of the optimizer say.
package formulas

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// Contract is C-MODEL-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, class contract.Class, phase contract.Phase, derivation string, check func(*subject)) *contract.Clause {
		return &contract.Clause{ID: "C-MODEL-001." + n, Says: says, Class: class, Reads: reads, Phase: phase, Derivation: derivation, Check: with(check)}
	}
	return &contract.Contract{
		ID:        "C-MODEL-001",
		Title:     "A step is what the formulas say",
		Statement: "Initial weights, loss, every gradient, norm, clipping, learning rate and update are those of the model's and the optimizer's formulas, evaluated a second time by code that shares nothing with training.",
		Doc:       doc,
		Judges:    func(p plan.Plan) bool { return p.World() == 1 },
		Lacks:     lacks,
		Clauses: []*contract.Clause{
			c("1", "The initial weights are the generator's, bit for bit: every parameter of the model, and no other.",
				"digest (weight) with elements, before the first step", contract.Exact, contract.Initial, "", (*subject).initial),
			c("2", "Every activation, the loss and every gradient of a step are the formulas' at the weights before it.",
				"digest (weight, grad) and tap with elements, scalar (loss)", contract.Bound, contract.Forward, running, (*subject).values),
			c("3", "Norm, clipping coefficient, learning rate and counter are recorded as the gradient and the step's number have them.",
				"digest (grad) with elements, scalar (norm, coef, lr, counter)", contract.Bound, contract.Norm, scalars, (*subject).recorded),
			c("4", "Weights and moments move as the optimizer says, by the coefficient and the learning rate that gradient and step's number have.",
				"digest (weight, moments, grad) with elements", contract.Bound, contract.Update, running, (*subject).applied),
		},
	}
}

// running says what the bounds are.
const running = "Values are evaluated in float64. Beside each stands a bound on its distance from any float32 evaluation, by a running error analysis: " +
	"every operation adds u = 2^-24 of the magnitude at hand, a sum gamma_n = n*u/(1-n*u) of the sum of its terms' magnitudes, n the roundings that a term passes " +
	"(the longest, whose order is known, u of every partial sum), " +
	"exp and log 0.87 ulp; what an operand is off by is passed on (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 3.3). " +
	"Evaluation goes on from each recorded tensor as exact, so that bounds do not compound. One wider than 1e-3 of its tensor's largest value says nothing: the clause is then inconclusive. " +
	"The gradients of queries and keys are differences, which cancel where tokens are equal: their bounds are compared with the largest of the terms, where that is more."

// scalars says what the bounds of scalars are.
const scalars = "Scalars are float64. A norm's squares are exact, their sum is compensated: two evaluations differ by less than 2^-48 of it; " +
	"a coefficient by that and four roundings; a learning rate by a dozen roundings and a cosine, 1e-15 of the peak."

const doc = `All plans share the model, the optimizer and the kernels, so no comparison of one
plan with another sees what is wrong in all of them: a rotation by the wrong sign,
a scale of 1/sqrt(d+1), a decay of norm weights, a coefficient that is recorded
and not applied. Here a run of one rank, whose bits the other contracts hold all
plans to, is held against the formulas themselves: a decoder, its gradients and
its update, written a second time in float64 from the papers (package
independent), which imports nothing of the trainer and is itself held against
PyTorch. What the configuration says is judged, so fields differ from their
defaults in the cases: a constant in place of a field shows.

How each clause judges
  1  Every parameter's initial elements against the generator's, of the seed, the
     parameter's name and the element's place, in bits. Finds a deviation that is
     not the configured one, a bias that begins at 0, a tied head with weights of
     its own.
  2  One step after the weights have moved (before that all norm weights are 1 and
     hide a factor). Tokens and targets are those of the recorded batch. Every
     recorded activation, and every gradient of one, is judged where it arises,
     from the recorded tensors before it: inputs and results of norms, projections,
     attention, the residual stream, gates, logits, and the same backward. Then
     the loss, and the gradient of every parameter. So the first tensor named is
     the one whose own formula is broken. Finds the wrong rotation, scale, mask or
     epsilon, a dropped term or bias, a tied gradient that counts once, a mean over
     the wrong tokens (huggingface/transformers#34191).
  3  The norm is that of the recorded gradient's elements, each parameter once. The
     coefficient is clip/(norm+1e-6) where that is below 1, of that norm; rate and
     counter are those of the steps taken, counted here. Finds a warm-up that is off
     by one, a norm that counts a tied weight twice.
  4  Weights and moments after every step, from those before it and the gradient's
     elements, with coefficient and rate computed here: what the scalars of clause
     3 say decides nothing. Of a parameter the moments come first, as they arise, so
     a weight is named first only where its own formula is broken. Finds a
     coefficient or a rate that is recorded and not applied, a beta that is another,
     a bias correction off by one, weight decay on norms and biases, decay that
     enters the moments. A step whose update moves no weight further than its bound
     is no evidence, unless the rate has fallen to 0: then moments must move.

One case takes 72 steps of a small model from a seed of 64 bits, past three times its
horizon: what goes wrong late shows there. Others go on, for a few steps, from
checkpoints of steps 100 to 2^30, in schedules that warm up, fall, end and have ended
there: what goes wrong from some step on shows in the last of them at the latest.
Another has positions past 128. With --config there is a sequence of the
configuration's whole length: of the model, or, where that takes too long, of a narrow
one with heads of its width. Of a model whose elements there is no memory for, as many
blocks are judged as there is memory for, which a note says; where there is none for a
single one, nothing is judged, and the bytes are named.

How to read a finding
  step    optimizer step, from 0
  tensor  parameter, or block and activation: "block.2/attention" is the input of the
          output projection, "block.2/dq" the gradient of q before its rotation,
          "dattn" and "dmlp" those that the branches of a block give its norms
  index   element that is furthest out, row by row, rows by position in the batch
  bound   observed / bound`
