package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	m := func(id, clause, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-PIPE-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	const shorter = "odd dp=1,pp=4,microbatches=8"
	return []suite.Mutant{
		m("block-on-two-stages", "1", "nano dp=1,pp=2", at(0, -1, "layers.2."), layers(0, 6),
			"the first stage cuts another number of layers: block 2 runs on both stages", "B083"),
		m("block-on-no-stage", "1", "nano dp=1,pp=2", at(some, 0, "block.1"), layers(0, 2),
			"the first stage cuts another number of layers: block 1 runs nowhere (ml-explore/mlx-lm#1688, NVIDIA/Megatron-LM#1304)", "B083"),

		m("shape-of-the-first", "2", shorter, at(1, 0, "micro-batch 3"), fixedShape(2, 2*45*35),
			"later stages take every micro-batch for one of the first one's shape (pytorch/pytorch#126600, deepspeedai/DeepSpeed#3195)", "B085"),

		m("messages-swapped", "3", "nano dp=1,pp=4,schedule=gpipe", at(1, 0, "micro-batch 2"), swapMessages(0, 2),
			"two micro-batches of one shape change places between two stages (NVIDIA/Megatron-LM#5271)", "B087"),
		m("stale-receive-buffer", "3", shorter, at(1, 0, "micro-batch 3"), staleReceive(1),
			"a shorter micro-batch finds the longer one before it in the receive buffer", "B085"),

		m("labels-of-another-batch", "4", "nano dp=1,pp=2", at(some, 1, ""), lastStageAhead(1),
			"the last stage takes its targets from the batch after the first stage's (deepspeedai/DeepSpeed#5729)", "B086"),
		m("micro-batch-gradient-lost", "4", "nano dp=1,pp=2", at(0, 0, "logical worker 1"), loseGradients(0, 14, 28),
			"the first stage adds no weight gradient of its second micro-batch (NVIDIA-NeMo/Automodel#3530)", "B080"),

		m("backward-in-another-order", "5", "nano dp=1,pp=4,schedule=gpipe", at(some, 0, "RecvBackward of micro-batch 1"), fault.OnSchedule(swapBackward(1, 2)),
			"all stages run the backward passes of two micro-batches in exchanged order: chains of sums get other last bits"),
		m("activations-never-freed", "5", "nano dp=1,pp=4", at(some, 0, "by the plan's schedule"), fault.OnSchedule(allForwardFirst),
			"all forward passes run before the first backward pass although the plan is 1F1B: every stage holds all micro-batches"),

		m("nothing-overlaps", "6", "nano dp=1,pp=2", at(some, 0, "idle share"), fault.OnSchedule(oneAtATime),
			"each micro-batch goes through all stages before the next begins: results are right, half of the time is idle", "B091"),

		m("tied-gradient-kept", "7", "odd dp=1,pp=3", at(2, 0, "tied gradient"), skipMessages(names.TiedGradient),
			"the last stage keeps the head's gradient of a tied embedding", "B077"),
		m("tied-weight-kept", "7", "odd dp=1,pp=3", at(2, 0, "lm_head"), skipMessages(names.TiedWeight),
			"the last stage keeps its initial copy of a tied embedding", "B077"),
	}
}
