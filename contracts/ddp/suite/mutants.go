package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	m := func(id, clause, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-DDP-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	b := model.BlockUnit
	return append([]suite.Mutant{
		m("own-seed-no-broadcast", "1", "nano dp=4", at(some, -1, ""), fault.All(ownSeed(), unbroadcast()),
			"every rank starts from its own seed and nothing is broadcast; gradients agree for ever (pytorch/torchtitan#166)", "B016"),

		m("bit-flipped-in-delivery", "2", "nano dp=4", at(3, 1, "layers.1."), fault.FlipBit(3, b(1), 1, 7, 3),
			"one rank receives one bit of a reduced gradient flipped, once (NVIDIA/nccl#434)", "B150"),
		m("own-learning-rate", "2", "nano dp=2", at(1, 0, ""), fault.LearningRate(1, 1.5),
			"rank 1 keeps another learning rate, as after a resume that broadcast tensors only (horovod/horovod#526)", "B010"),
		m("tensors-packed-in-other-order", "2", "nano dp=2", at(1, 0, "layers.1.self_attn.k_proj"), swapKV(1),
			"rank 1 packs the gradients of two tensors of one shape in swapped order (chainer/chainer#2896, bytedance/byteps#176)", "B007"),
		m("bit-flipped-on-one-slice", "2", "nano dp=2,tp=2,pp=2", at(7, 1, "layers.3."), fault.FlipBit(7, b(3), 1, 7, 3),
			"one rank of a stage's second slice receives a flipped bit: it differs from its data-parallel peer only, and nobody else holds those elements", "B150"),
		m("own-learning-rate-of-a-stage", "2", "odd dp=2,pp=2", at(3, 0, "layers.2."), fault.LearningRate(3, 1.5),
			"the last stage of one replica keeps another learning rate (horovod/horovod#1609)", "B010"),
		m("stale-weights-after-gather", "2", "nano dp=2,tp=2,zero=1", at(3, 1, "embed_tokens"), fault.StaleSlice(3, 0, names.WholeVector),
			"under ZeRO a rank keeps its peer's slice of the first step (hpcaitech/ColossalAI#2391)", "B046"),
		inOneProcess(m("shared-moments", "2", "nano dp=2", at(1, -1, "moment.0"), shareMoments(),
			"two ranks' first moments lie in one memory: they are equal whatever the reduction does")),

		m("reduction-skipped", "3", "nano dp=2", at(some, 1, "block.2"), fault.OnCalls(fault.Reductions(b(2), 1), fault.Skip),
			"one block's gradient stays local in one step (TrainCheck, workload ddp-out-of-sync)", "B004"),
		m("head-not-reduced", "3", "odd dp=2", at(some, 1, "head"), fault.OnCalls(fault.Reductions(model.HeadUnit, 1), fault.Skip),
			"the second gradient of a tied embedding, the head's, is never reduced"),
		m("reduced-twice", "3", "nano dp=4", at(some, 1, "block.1"), fault.OnCalls(fault.Reductions(b(1), 1), fault.Twice),
			"one block's gradient is reduced twice: scaled by the number of ranks, equal on all"),
		m("sub-group", "3", "nano dp=4", at(some, 1, "block.2"), fault.OnCalls(fault.Reductions(b(2), 1), inPairs),
			"one block's gradient is reduced within pairs of ranks only (allenai/OLMo-core#319)"),

		m("reductions-after-the-backward-pass", "3", "nano dp=2", at(some, 0, "backward pass"), lateReductions(),
			"reductions wait until the backward pass is over: every number is right and nothing overlaps", "B053"),
		m("late-reductions-of-stages", "3", "odd dp=2,pp=2", at(some, 0, "backward pass"), lateReductions(),
			"the same on pipeline stages, each of which could overlap its own blocks", "B053"),
		m("stage-not-reduced", "3", "nano dp=2,tp=2,pp=2", at(2, 1, "block.3"), fault.OnCalls(fault.Reductions(b(3), 1), fault.Skip),
			"one block of the last stage is never reduced over the data-parallel ranks (allenai/OLMo-core#319)"),
		m("reduced-over-tensor-parallel-ranks", "3", "odd dp=2,tp=2,vocab=parallel", at(some, 1, "block.1"), fault.OnGroup(names.TP, fault.Reductions(b(1), 1)),
			"one block's gradient is summed over the tensor-parallel ranks, whose slices are others, and not over the data-parallel ones"),
		m("vector-reduced-twice", "3", "nano dp=2,tp=2,zero=1", at(some, 0, ""), fault.ReduceAgain(),
			"under ZeRO every part is reduce-scattered twice (hpcaitech/ColossalAI#247)", "B033"),

		m("reduced-once-only", "3", "nano dp=2", at(some, 1, "block.2"), afterFirst(b(2)),
			"a bucket keeps pointing at the storage of the first step: from the second on its gradient is never reduced (pytorch/pytorch#104336)", "B003"),
		m("half-of-a-view", "3", "nano dp=2", at(some, 1, "block.1"), strided(b(1)),
			"a gradient handed over as a view with a stride is reduced as if it were contiguous (pytorch/pytorch#192920)", "B019"),
		m("gradient-not-cleared", "4", "odd dp=2", at(some, 1, ""), accumulated(),
			"the gradient of a step stays in that of the next, on all ranks", "B018"),
		m("counted-per-tensor", "4", "odd dp=2", at(some, 0, ""), countedPerTensor(),
			"the optimizer's step number moves with every tensor (flashlight/flashlight#143)", "B106"),
		m("ignored-tokens-counted", "4", "odd dp=2", at(some, 0, "logical worker 0"), ofAllPositions(oddConfig()),
			"the mean is taken over all positions, also those without a target (NVIDIA/TransformerEngine#2476)", "B146"),
		m("no-gradient-behind-the-final-norm", "4", "odd dp=2", at(some, 0, "logical worker 0"), noGradientAbove(),
			"the final norm gives no gradient to what is before it (huggingface/candle#2168)", "B136"),
		m("norm-gradient-without-last-row", "4", "odd dp=2", at(some, 0, "norm.weight"), lastRowsLost(),
			"the gradient of a norm's weight misses the rows that no block of the kernel has (BobMcDear/attorch#18)", "B133"),
		m("positions-from-0", "4", "odd dp=2", at(1, 0, "logical worker"), everyPositionFromZero(1),
			"one rank's positions all have the first one's angles (NVIDIA/Megatron-LM#453)", "B094", "B095"),
		m("mean-of-means", "4", "odd dp=2", at(some, 0, ""), meanOfMeans(),
			"ranks average their own means although they have unequal token counts (pytorch/torchtitan#2206, ml-explore/mlx-lm#1413)", "B021", "B022"),
		m("far-first-tree", "4", "odd dp=4", at(some, 0, "layers.0."), fault.OnCalls(fault.Reductions(b(0), -1), fault.FarFirst),
			"ranks are added in the order of halving from the far distance: equal on all ranks, another last bit"),
		m("schedule-advanced-by-world", "4", "odd dp=4", at(some, 0, "lr"), fault.Schedule(4),
			"the learning-rate schedule moves once per rank instead of once per step (huggingface/transformers#24088)", "B013"),
		m("silent-corruption", "4", "nano dp=8", at(5, 1, "layers.1.mlp.gate_proj"), fault.Corrupt(5, 40, 0),
			"one matrix product on one rank returns one wrong last bit, once; the reduction spreads it to all"),
		m("silent-corruption-on-a-stage", "4", "nano dp=2,tp=2,pp=2", at(some, 0, "logical worker 4"), fault.Corrupt(6, 10, 12),
			"one matrix product on one slice of the last stage returns one wrong bit, once"),
		m("bounded-wrong-sum", "4", "nano dp=3", at(some, 1, "layers.2."), fault.FlipBit(-1, b(2), 1, 100, 29),
			"the reduced gradient is wrong and equal on all ranks, on a plan that is judged by a bound"),
		m("bounded-wrong-counter", "4", "nano dp=3", at(some, 0, ""), shiftCounter(1),
			"the bias correction counts one step too many on all ranks (allenai/OLMo-core#317), on a plan that is judged by a bound", "B104"),

		m("swapped-operations", "5", "nano dp=4", at(1, 1, "block.1"), swap(1, b(2), b(1), 1),
			"rank 1 reduces two blocks of one size in the opposite order; the sizes fit, so nothing fails (pytorch/pytorch#75902)", "B007"),

		m("swapped-operations-of-a-stage", "5", "nano dp=2,tp=2,pp=2", at(5, 1, "block.0"), swap(5, b(1), b(0), 1),
			"the same on one slice of the first stage", "B007"),

		m("first-half-updated", "6", "nano dp=2", at(some, 0, "embed_tokens"), firstHalf(),
			"the optimizer's loop ends early: the last rows never move, on any rank (hpcaitech/ColossalAI#633)", "B107"),

		m("first-half-updated-of-slices", "6", "odd dp=2,tp=2,vocab=parallel", at(some, 0, "embed_tokens"), firstHalf(),
			"the same on slices: the last rows of every rank's part never move", "B107"),

		m("nan-in-one-product", "7", "nano dp=4", at(2, 1, "logical worker 4"), nan(2, 68),
			"a matrix product of rank 2 writes one NaN; after the reduction all ranks agree on it (ecmwf/WeatherGenerator#2724, pytorch/torchtitan#951)", "B011", "B152"),

		m("own-step-counter", "2", "nano dp=4", at(2, 0, "optimizer steps"), fault.OnCounter(func(rank, taken int) int {
			if rank == 2 {
				taken++
			}
			return taken
		}), "one rank counts a step more than it takes"),
		m("one-token-fewer", "8", "nano dp=2", at(some, 0, "valid tokens"), fault.Tokens(-1), "all ranks count one valid token too few"),
		m("one-token-more", "8", "nano dp=2", at(some, 0, "valid tokens"), fault.Tokens(1), "the same, one too many"),
		m("same-shard", "8", "nano dp=2", at(1, 0, "sequence 0"), sameShard(1, 2),
			"rank 1 reads the data of rank 0"),
		m("same-shard-on-one-stage", "8", "nano dp=2,tp=2,pp=2", at(6, 0, "sequence 0"), sameShard(6, 2),
			"one rank of the last stage reads the targets of the other replica: its stage is asked for other losses than its first stage computed"),
		m("sequence-lost", "8", "odd dp=4", at(some, 0, "sequence 9"), dropSequence(1),
			"a rank drops the last sequence of a share that is longer than the others' (pytorch/pytorch#38174)", "B031", "L03"),
	}, fault.Scalars(contract.Test, "C-DDP-001.4", "nano dp=4", " of rank")[:4]...) // the counter is no statement of the clause
}

// swapKV exchanges the gradients of k and v in block 1 of nano, which have one
// shape and lie side by side.
func swapKV(rank int) fault.Fault {
	c, err := model.Named("nano")
	if err != nil {
		return fault.All()
	}
	first := c.Hidden + c.QDim()*c.Hidden // after the norm and q
	return swapTensors(rank, model.BlockUnit(1), first, c.KVDim()*c.Hidden)
}

// shareMoments gives both ranks of nano on dp=2 one buffer of moments. Weights
// come first, then the gradients of the binary counter over four workers.
func shareMoments() fault.Fault {
	c, err := model.Named("nano")
	if err != nil {
		return fault.All()
	}
	return shareBuffer(0, 1, 4, int(c.Params()))
}

// inOneProcess is a mutant whose ranks have a memory in common.
func inOneProcess(m suite.Mutant) suite.Mutant {
	m.OneProcess = true
	return m
}

// oddConfig is the fixture odd.
func oddConfig() spec.Config {
	c, _ := spec.Preset("odd") // a named configuration: its cases report what is wrong with it
	return c
}
