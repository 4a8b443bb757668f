// Package ckpt is contract C-CKPT-001: a run that was stored and goes on, under
// whatever plan, is the run that was never interrupted.
package ckpt

import (
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
)

// Contract is C-CKPT-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, class contract.Class, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-CKPT-001." + n, Says: says, Class: class, Evidence: reads, Check: check}
	}
	return &contract.Contract{
		ID:        "C-CKPT-001",
		Title:     "A resumed run is the uninterrupted run",
		Statement: "A run that is stored and resumed under another plan gives the bits of the uninterrupted run, and goes on at its step counter, learning rate and data; a checkpoint that is damaged is refused by the name of the file.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "What is loaded is the state of the uninterrupted run at that step: all weights and moments, bit for bit, on every rank.",
				"resume, digest (weight, moments) before the first step", contract.Exact, resumed(loaded)),
			c("2", "Every step after that has the weights, moments, norm and loss of the uninterrupted run, bit for bit.",
				"resume, digest (weight, moments), scalar (norm, loss)", contract.Exact, resumed(continued)),
			c("3", "Step counter, learning rate and clipping go on where they were, on every rank.",
				"resume, scalar (counter, lr, coef)", contract.Exact, resumed(counted)),
			c("4", "The data goes on where it was: every logical worker takes the sequences of the uninterrupted run.",
				"resume, data", contract.Integer, resumed(fed)),
			c("5", "A checkpoint with a damaged, truncated, exchanged, foreign or missing file is refused, and the file is named; so is one of another text, model, optimizer, learning rate, seed, format or arithmetic.",
				"refusal", contract.Integer, refused),
			c("6", "The files hold every weight and moment of the run that stored them, each under its own name, as a reader finds them that shares nothing with the writer.",
				"stored, refusal; digest (weight, moments) of the last step", contract.Exact, evidence.With(kept)),
			c("7", "The manifest says what the run was and where it stood: format, arithmetic, step, counter, configuration, digests and files.",
				"file; digest (weight, moments), scalar (counter) of the last step", contract.Exact, evidence.With(manifest)),
			c("8", "The golden checkpoint is stored byte for byte, and resumed.",
				"file, refusal; the golden checkpoint", contract.Exact, goldenFiles),
		},
		Judges: compare.Canonical,
	}
}

const doc = `A job of weeks is interrupted and goes on from files, often on another number
of machines. What is lost there does not show: a run without its moments, with a
counter that begins anew, or on data that it has seen already, still learns. So
a run is stored by one plan and resumed by another, in a temporary directory,
and compared with a single worker that was never interrupted.

How each clause judges
  1  Weights and moments as the ranks hold them after loading, before their first
     step, against the uninterrupted run's at the end of the step before: slices
     and shards must add up, copies must be equal. Finds moments that are not
     loaded (areal-project/AReaL#1468), offsets that miss (NVIDIA/Megatron-LM#5077),
     and a file of another step whose hashes agree.
  2  The same after every further step, with the norm and the loss. Finds what
     the state at rest does not show: the copy of a tied weight on another stage,
     a schedule that begins anew.
  3  Counter, learning rate and coefficient on every rank. In one case a step was
     skipped before the run was stored, so that the counter is not the number of
     batches. Finds ranks that begin anew while others go on (horovod/horovod#526).
  4  The ids of the sequences, per logical worker and step
     (PrimeIntellect-ai/prime-rl#1035, huggingface/accelerate#4071).
  5  A small checkpoint is damaged in each of these ways, and resumed: an error
     must come before the first step, and name the file that is to blame: a
     flipped bit in the data and in a header, a file cut short, two ranks' files
     exchanged, a file of the step before, no file, a manifest cut short or with
     another step counter or without one of the files. Where a hash was made to
     agree again the digests of the elements must tell. A checkpoint of another
     text, optimizer, learning rate or seed is whole, and must be refused by the
     name of what differs.
  6  Clauses 1 to 4 read with the trainer what the trainer wrote, and an error
     that both sides make is none to them. Here contracts/independent reads the
     safetensors files, puts every tensor together, and its digest must be the one
     that the run recorded for that name. Finds tensors exchanged or stored under
     another name, and slices at the wrong place.
  7  Every field of the manifest against the history of the run.
  8  A tiny run is stored, and its files are compared with golden/checkpoint. So
     a change of the format shows that reads its own files well, but not those
     that people have. The golden files themselves are resumed.

How to read a finding
  case    the plan that stored the run, "then" the plan that resumed it; "stored"
          where only the files are looked at
  step    step of the data, from 0; the step before the first of the resumed run
          is the state as it was loaded
  A finding in clause 1 is about the files; in clause 2 without one in clause 1,
  about what is not in them: clauses 3 and 4 say whether position or data.`
