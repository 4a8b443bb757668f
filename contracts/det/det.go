// Package det is contract C-DET-001: training gives the same bits every time
// and everywhere.
package det

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
)

// Contract is C-DET-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-DET-001." + n, Says: says, Class: contract.Exact, Evidence: reads, Check: check}
	}
	return &contract.Contract{
		ID:        "C-DET-001",
		Title:     "Training gives the same bits everywhere",
		Statement: "Two runs give the same bits, another seed gives others, and the fingerprint is the golden one on every backend, instruction set, thread count and plan.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "A run gives the same bits again.",
				"digest, changed, scalar of the test run and of the same run again", evidence.WithBoth(contract.Again, same)),
			c("2", "Another seed gives other weights.",
				"digest (weight) of the test run and of a run with another seed", evidence.WithBoth(contract.Other, other)),
			c("3", "The fingerprint of every step is the golden one.",
				"digest (weight, moments), scalar (loss, coef); golden/fingerprints", evidence.With(fingerprinted)),
			c("4", "Plans and thread counts do not change the fingerprint.",
				"digest (weight, moments), scalar (loss) of runs on several plans and with one thread", evidence.With(invariant)),
			c("5", "The learning rate of every optimizer step is the recorded one, through warm-up and cosine to beyond the horizon.",
				"scalar (lr); golden/schedules", evidence.With(scheduled)),
		},
	}
}

const doc = `A processor that computes one wrong bit in a billion operations trains a
slightly wrong model, and nothing says so. The arithmetic here is defined to the
last bit, so one number per step, recorded once, tells for every machine, every
backend and every plan whether it computes right: this is the check for silent
data corruption on new hardware, and for a compiler, a driver or a library that
rounds differently.

How each clause judges
  1  Every digest and scalar of two runs of one configuration. What differs is
     not reproducible: a race (ml-explore/mlx#2340,
     fla-org/flash-linear-attention#889), memory that is not initialised, a unit
     that fails now and then (pytorch/torchtitan#951).
  2  A comparison that never differs proves nothing: with another seed every
     initial matrix, and every step's fingerprint, must be another.
  3  Digests of all weights and all moments and the bits of the loss, after
     every step, against golden/fingerprints: both fixtures, AdamW and SGD, head
     tied and not, biases on all projections, with clipping active in some steps.
     They run on their own text and seed, whatever the options, all 20 steps;
     from level 2 on also a few steps of the larger models 5M and 50M, whose
     products fill the tiles of fast kernels and whose sums are longer than
     their blocks (50M from level 3 on where it would run in plain Go). A golden of another arithmetic version, text or configuration
     is not compared: the clause is then inconclusive and names the command that
     records it.
  4  The fingerprints of one configuration on several data-parallel plans and
     on one thread. If clause 3 holds for one rank and this does not, the
     communication or the threading is at fault, not the arithmetic.
  5  Two steps of a fixture lie within its warm-up, and a schedule that is wrong
     everywhere looks right everywhere. So a model of one layer takes every step
     of four schedules, on two ranks, and the learning rate is compared with
     golden/schedules bit for bit (huggingface/transformers#24088).

How to read a finding
  step    the first step whose fingerprint differs
  tensor  the first parameter that differs, where both runs are at hand
  A wrong loss with right weights in step 0 points at the forward pass, a right
  loss with wrong weights at the backward pass or the optimizer. Run the case
  again: a finding that moves is hardware or a race, one that stays is
  software.`
