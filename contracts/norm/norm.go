// Package norm is contract C-NORM-001: one gradient norm, one clipping
// coefficient and one decision to step, on all ranks.
package norm

import (
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
)

// Contract is C-NORM-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-NORM-001." + n, Says: says, Class: contract.Exact, Evidence: reads, Check: check}
	}
	return &contract.Contract{
		ID:        "C-NORM-001",
		Title:     "One norm, one coefficient, one decision",
		Statement: "The gradient is clipped by the exact norm of the full logical gradient, with one coefficient everywhere; a norm that is not finite moves no rank, and the next step goes on as if the skipped one had not been.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "All ranks have one norm and one clipping coefficient, clip/(norm+1e-6) where that is below 1.",
				"scalar (norm, coef)", evidence.With(agreed)),
			c("2", "The norm is the root of the exact sum of squares of the reduced gradient, each logical parameter once.",
				"scalar (norm); digest (grad) with elements, of the test or the control run", evidence.WithBoth(contract.Control, measured)),
			c("3", "Where the reduced gradient is not finite no rank steps: weights, moments and step counters stay; elsewhere every rank steps.",
				"digest (grad, weight, moments), scalar (norm, counter), skip", evidence.With(decided)),
			c("4", "After a skipped step the run goes on: counter and learning rate count optimizer steps, and every step is the optimizer's, bit for bit the one of a single worker that skipped the same step.",
				"scalar (counter, lr), digest (weight, moments); elements of the control run", resumed),
			c("5", "The first producer of a value that is not finite is named: the logical worker and the parameter that a single worker names.",
				"digest (grad.worker) of the test and the control run", evidence.WithBoth(contract.Control, named)),
			{ID: "C-NORM-001.6", Class: contract.Bound, Check: evidence.WithBoth(contract.Control, applied),
				Says:     "What every update did is what the recorded coefficient and learning rate do, and that rate is the schedule's.",
				Evidence: "scalar (lr, coef); elements (grad, weight, moments) of the control run",
				Derivation: "the update in float64 (contracts/independent) with the recorded scalars; the bound adds up the roundings of the float32 update, " +
					"element by element, so that another coefficient, rate, decay or correction lies many bounds away"},
		},
		Judges:   compare.Canonical,
		Elements: true,
	}
}

const doc = `Clipping joins all ranks in one number, and in one decision: a gradient with an
infinity must stop all of them, or the ones that step go their own way. No run
on clean data takes that path, so these cases plant an infinity in one element of
one logical worker's gradient, on one rank, in one step, and look at what
follows. The control is a single worker with the same infinity in the same
element.

How each clause judges
  1  Norm and coefficient of every rank against those of rank 0, and the
     coefficient against the formula. Finds norms of the own shard
     (sgl-project/SpecForge#663, pytorch/torchtitan#766).
  2  The squares of all recorded gradient elements are added here in integers
     wide enough to be exact, and the sum is rounded once. A norm that counts
     replicas twice is equal on all ranks (pytorch/pytorch#88955), and so is one
     of a part of the gradient. Where neither run recorded elements the norm is
     compared with the control's.
  3  A step whose reduced gradient has an element that is not finite must be
     skipped by every rank, whatever the rank's own loss or shard
     (ecmwf/WeatherGenerator#2724): every weight and moment has the digest of
     the step before. All other steps must be taken.
  4  The steps taken are counted here, from what clause 3 says of each step.
     Counter and learning rate must follow that count, not the number of batches
     (huggingface/accelerate#963); and the control's weights and moments are
     recomputed step by step from its recorded elements, so that a bias
     correction which counts the skipped step shows although all ranks agree.
  5  In the skipped step some worker's own gradient, before any sum, must show
     the value that is not finite, and it must be the worker and parameter in
     which the single worker's run shows it: a producer that is hidden (by
     nan_to_num, by a cast) cannot be repaired.
  6  A scalar that is recorded may be another than the one that is applied, and the
     recomputation of clause 4 uses the trainer's own formulas. Here the update is
     written again, in float64, and fed with the recorded coefficient and rate: the
     elements of weights and moments must come out within the roundings of float32.
     Finds a coefficient that is logged and not used, and a schedule, a decay or a
     bias correction that is wrong for all ranks and the single worker alike.

How to read a finding
  step    optimizer step of the data, from 0; the planted one is in the case's name
  rank    whose norm, counter or state deviates
  tensor  the parameter whose elements moved, or first were not finite`
