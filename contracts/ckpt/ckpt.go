// Package ckpt is contract C-CKPT-001: a run that was stored and goes on, under
// whatever plan, is the run that was never interrupted.
package ckpt

import (
	_ "embed" // explain.txt

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
)

// Contract is C-CKPT-001.
func Contract() *contract.Contract {
	c := contract.Numbered("C-CKPT-001")
	return &contract.Contract{
		ID:        "C-CKPT-001",
		Title:     "A resumed run is the uninterrupted run",
		Statement: "A run that is stored and resumed under another plan gives the bits of the uninterrupted run, and goes on at its step counter, learning rate and data; a checkpoint that is damaged is refused by the name of the file.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "What is loaded is the state of the uninterrupted run at that step: all weights and moments, bit for bit, on every rank.",
				"resume, digest (weight, moments) before the first step", contract.Exact, resumed(loaded)).In(contract.Initial),
			c("2", "Every step after that has the weights, moments, norm and loss of the uninterrupted run, bit for bit.",
				"resume, digest (weight, moments), scalar (norm, loss)", contract.Exact, resumed(continued)),
			c("3", "Step counter, learning rate and clipping go on where they were, on every rank.",
				"resume, scalar (counter, lr, coef)", contract.Exact, resumed(counted)),
			c("4", "The data goes on where it was: every logical worker takes the sequences of the uninterrupted run.",
				"resume, data", contract.Integer, resumed(fed)),
			c("5", "A checkpoint with a damaged, truncated, exchanged, foreign or missing file, or with an element or a field that is there twice, is refused, and the file is named; so is one of another text, model, optimizer, learning rate, seed, format or arithmetic.",
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

//go:embed explain.txt
var doc string
