package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	m := func(id, clause, on string, f fault.Fault, says string) suite.Mutant {
		return suite.Mutant{ID: id, Clause: "C-PIPE-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	const shorter = "odd dp=1,pp=4,microbatches=8"
	return []suite.Mutant{
		m("block-on-two-stages", "1", "nano dp=1,pp=2", layers(0, 6),
			"the first stage cuts another number of layers: block 2 runs on both stages"),
		m("block-on-no-stage", "1", "nano dp=1,pp=2", layers(0, 2),
			"the first stage cuts another number of layers: block 1 runs nowhere (ml-explore/mlx-lm#1688, NVIDIA/Megatron-LM#1304)"),

		m("shape-of-the-first", "2", shorter, fixedShape(2, 2*45*35),
			"later stages take every micro-batch for one of the first one's shape (pytorch/pytorch#126600, deepspeedai/DeepSpeed#3195)"),

		m("messages-swapped", "3", "nano dp=1,pp=4,schedule=gpipe", swapMessages(0, 2),
			"two micro-batches of one shape change places between two stages (NVIDIA/Megatron-LM#5271)"),
		m("stale-receive-buffer", "3", shorter, staleReceive(1),
			"a shorter micro-batch finds the longer one before it in the receive buffer"),

		m("micro-batch-gradient-lost", "4", "nano dp=1,pp=2", loseGradients(0, 14, 28),
			"the first stage adds no weight gradient of its second micro-batch (NVIDIA-NeMo/Automodel#3530)"),
		m("ninth-micro-batch-lost", "4", "odd dp=1,pp=2,microbatches=12"+suite.Epochs, loseGradients(0, 8*14, 9*14),
			"the first stage adds no weight gradient of its ninth micro-batch: the mask of those that are done has eight bits"),
		m("rate-wrong-from-step-8", "4", "odd dp=1,pp=2,microbatches=12"+suite.Epochs, fault.OnUpdate(func(u *fault.Update) {
			if u.Step.T >= 8 {
				u.Step.T -= 8
			}
			u.Do()
		}), "bias correction begins anew after eight steps, on both stages"),

		m("backward-in-another-order", "5", "nano dp=1,pp=4,schedule=gpipe", fault.OnSchedule(swapBackward(1, 2)),
			"all stages run the backward passes of two micro-batches in exchanged order: chains of sums get other last bits"),
		m("activations-never-freed", "5", "nano dp=1,pp=4", fault.OnSchedule(allForwardFirst),
			"all forward passes run before the first backward pass although the plan is 1F1B: every stage holds all micro-batches"),

		m("nothing-overlaps", "6", "nano dp=1,pp=2", fault.OnSchedule(oneAtATime),
			"each micro-batch goes through all stages before the next begins: results are right, half of the time is idle"),

		m("tied-gradient-kept", "7", "odd dp=1,pp=3", skipMessages(names.TiedGradient),
			"the last stage keeps the head's gradient of a tied embedding"),
		m("tied-weight-kept", "7", "odd dp=1,pp=3", skipMessages(names.TiedWeight),
			"the last stage keeps its initial copy of a tied embedding"),
	}
}
