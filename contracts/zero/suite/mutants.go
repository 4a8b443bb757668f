package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	m := func(id, clause, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-ZERO-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	b := model.BlockUnit
	const first = 1 // unit of block 0 where the embedding is unit 0
	return append([]suite.Mutant{
		m("remainder-to-last", "1", "odd dp=4,zero=2", at(some, -1, "m of embed"), remainderLast(),
			"the last rank takes what does not divide: shards cover everything and the result is right, the sizes are not"),
		m("remainder-to-last-in-stage-3", "1", "odd dp=3,zero=3", at(some, -1, "m of final"), remainderLast(),
			"the same with weights sharded too"),

		m("scatter-in-another-order", "2", "odd dp=4,zero=2", at(some, 0, ""), farScatter(),
			"reduce-scatter adds the ranks in the order of halving from the far distance: another last bit"),
		m("owner-does-not-update", "2", "odd dp=4,zero=3", at(some, 0, ""), skipUpdate(3),
			"the last rank's slices never move; all ranks agree on them (pytorch/pytorch#176076)", "B041"),
		m("clipped-by-local-norm", "2", "odd dp=4,zero=3", at(some, 0, "norm of rank"), fault.LocalNorm(),
			"every rank clips by the norm of its own shard (pytorch/torchtitan#766, sgl-project/SpecForge#663)", "B099"),
		m("moments-swapped", "2", "nano dp=4,zero=1", at(some, 0, "layers.2."), swapMoments(2),
			"one rank takes the first moments of its shard for the second ones"),
		m("idle-rank-does-not-count", "2", "nano dp=8,zero=1,shard=round-robin", at(4, 0, "counter"), fault.IdleCounter(4, 5, 6, 7),
			"the step counter stands still on ranks that own nothing", "B105"),
		m("reduced-gradient-reduced-again", "2", "nano dp=4,zero=2", at(some, 0, ""), fault.ReduceAgain(),
			"what a rank holds reduced enters the next reduction (hpcaitech/ColossalAI#247)", "B033"),

		m("stale-slice", "3", "odd dp=4,zero=1", at(2, 1, ""), fault.StaleSlice(2, 3, names.WholeVector),
			"a gather gives one rank a peer's slice of an earlier step"),
		m("last-step-again", "2", "odd dp=4,zero=3"+suite.Epochs, at(some, 7, "logical worker 0"), fault.OnShare(lastStepAgain(7)),
			"at the end of the text all ranks take its last step once more, as a source that is exhausted does"),
		m("owners-modulo-8", "3", "nano dp=16,zero=3 of 17 sequences", at(some, 0, "embed"), fault.WrapOwners(8),
			"the owners of a gather are numbered modulo 8: every rank uses the weights of other ones"),
		m("stale-slice-in-stage-3", "3", "odd dp=4,zero=3", at(1, 1, "block.2"), fault.StaleSlice(1, 0, b(2)),
			"a gather before use gives one rank a peer's slice of an earlier step"),
		m("broadcast-from-other-rank", "3", "odd dp=4,zero=1,shard=balanced", at(some, 0, ""), otherRoot(),
			"updated weights are broadcast by another rank than their owner (hpcaitech/ColossalAI#2391)", "B046"),

		m("unit-not-released", "4", "nano dp=4,zero=3", at(some, 0, "block.0"), announceTwice(-1, first, model.Forward),
			"one block stays gathered and is read again in the next step (deepspeedai/DeepSpeed#3025, NVIDIA/Megatron-LM#950)", "B051", "B039"),
		m("released-during-use", "4", "nano dp=4,zero=3", at(2, 0, "block.1"), releaseEarly(2, 9),
			"a block's buffer is given up, and poisoned, before its forward pass is through"),
		m("all-slices-stale", "4", "odd dp=3,zero=3", at(some, 1, "block.1"), fault.All(fault.StaleSlice(0, 1, b(1)), fault.StaleSlice(1, 1, b(1)), fault.StaleSlice(2, 1, b(1))),
			"every rank's pass finds one slice of the step before: they agree with each other", "B039"),

		m("gradient-not-freed", "5", "nano dp=4,zero=2", at(0, 0, "grads"), announceTwice(0, first, model.Backward),
			"a block's full gradient is allocated again before it was freed: one buffer leaks per micro-batch"),
		m("unit-held", "5", "odd dp=2,tp=2,zero=3", at(some, 0, "weights"), announceTwice(-1, first, model.Forward),
			"all ranks keep a block gathered (pytorch/pytorch#149029)", "B051"),

		m("gathered-twice", "6", "nano dp=4,zero=3", at(some, 0, "all-gather"), fault.OnCalls(fault.Calls(names.OpAllGather, b(3)), fault.Twice),
			"one block is gathered twice for each use: nothing but traffic shows it (NVIDIA/Megatron-LM#6492)", "B040"),
		m("gathered-too-rarely", "6", "nano dp=4,zero=3", at(some, 0, "all-gather"), fault.OnCalls(fault.Calls(names.OpAllGather, b(3)), fault.Skip),
			"one block is never gathered: traffic is saved, and the rest of its weights is whatever is there"),
		m("all-reduced-instead-of-scattered", "6", "nano dp=4,zero=2", at(some, 0, "all-reduce"), farScatter(),
			"gradients are all-reduced and then cut: twice the traffic"),

		m("two-owners", "7", "nano dp=4,zero=1,shard=contiguous", at(3, -1, "layers.1."), secondOwner(b(1), 3, 1),
			"two ranks hold and update the state of one block"),
		m("all-on-rank-0", "7", "nano dp=2,zero=1,shard=balanced", at(0, -1, ""), allOnFirst(),
			"a balanced map gives everything to rank 0: the result is right, no memory is saved"),
		m("block-without-owner", "7", "odd dp=4,zero=1,shard=balanced", at(some, 0, "bytes of moments"), noOwner(b(2)),
			"no rank holds the state of one block: it never moves"),
	}, fault.Scalars(contract.Test, "C-ZERO-001.2", "nano dp=4,zero=2", " of rank")...)
}
