// Package data is contract C-DATA-001: what a run trains on is its text, cut,
// dealt and counted as defined.
package data

import "github.com/lockstep-ml/lockstep/contracts/contract"

// Contract is C-DATA-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-DATA-001." + n, Says: says, Class: contract.Integer, Reads: reads, Phase: contract.Data, Check: check}
	}
	return &contract.Contract{
		ID:        "C-DATA-001",
		Title:     "Training data is the text",
		Statement: "Every micro-batch holds the tokens, targets and ignored positions that the text gives its logical worker in that step, and every step counts its valid tokens.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Every logical worker takes the sequences that are its own, in the order of the text, epoch after epoch.",
				"data: ids; the text", opened(ordered)),
			c("2", "A rank's micro-batches are its workers' sequences, cut as equally as can be, larger ones first.",
				"data: worker, micro, number of ids; the text", opened(cut)),
			c("3", "Tokens, targets and ignored positions of every micro-batch are those of the text.",
				"data: digest; the text", opened(filled)),
			c("4", "The valid tokens of every micro-batch and of the global batch are those of the text.",
				"data, tokens: count; the text", opened(counted)),
		},
	}
}

const doc = `Every plan reads its data by the same code, so an error there changes no
comparison of plans: all of them learn the wrong thing, and the loss falls all
the same. This contract reads the text again, by code of its own that shares
nothing with the trainer's (contracts/independent), and derives what each rank
must have been given. A history says what it was given: ids, counts, and a digest
of tokens and targets of every micro-batch.

How each clause judges
  1  The ids that a logical worker's micro-batches have together. A step's
     sequences are dealt in turn, as cards are; the end of the text is followed by
     its beginning, with the sequences left over dropped or padded. Finds data that
     is skipped or seen twice at the end of an epoch, and workers that take each
     other's share.
  2  Which worker each of a rank's micro-batches is of, and how many sequences it
     has. Each must be recorded once, in order.
  3  The digest of the micro-batch against that of the text's bytes. Finds targets
     that are not shifted or are another sequence's (deepspeedai/DeepSpeed#5729),
     bytes from 128 up that lose a bit, padding that is a target, and positions to
     be ignored that are not. The file of the text is read a second time, too: a
     run that was given other bytes (one lost, line ends converted, a mark cut off,
     an end missing) names another SHA-256 than the file has. Where runs were
     recorded before that is no verdict, as the file may be another since.
  4  The tokens that have a target. The mean loss is over them, so a number that
     is off scales every gradient (NVIDIA/TransformerEngine#2476).

One case runs over the end of an epoch on a text that holds every byte, drops
what is left over, and another pads it; two go through five epochs; three go on from
checkpoints of late steps, the last that a run may take among them. With --data the
cases are on that file.

How to read a finding
  rank    that was given the data
  step    step of the data, from 0 over all epochs
  A finding in clause 3 without one in 1 and 2 is about the contents: the right
  sequences with other tokens or targets.`
