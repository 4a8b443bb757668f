package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	m := func(id, clause, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-TP-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	b := model.BlockUnit
	return append([]suite.Mutant{
		m("bit-flipped-in-columns", "1", "nano dp=1,tp=2", at(some, 0, "block.0 q"), fault.Corrupt(1, 0, 0),
			"one rank's first query projection returns one wrong last bit, once"),
		m("key-columns-corrupt", "1", "odd dp=1,tp=4,vocab=parallel", at(3, 0, "block.0 k"), fault.Corrupt(3, 1, 30),
			"one of two copies of a KV head is computed wrong on one rank (sgl-project/sglang#19086)", "B063"),

		m("row-output-not-reduced", "2", "nano dp=1,tp=2", at(some, 0, "block.2 mlp"), fault.OnCalls(sums(b(2), mlpSum), fault.Skip),
			"one block's MLP output stays a partial sum on every rank"),
		m("bias-on-every-rank", "2", "odd dp=1,tp=2,vocab=parallel untied with linear biases", at(some, 0, "block.0 "), biasTimes(2),
			"row-parallel biases are added once per rank (huggingface/text-generation-inference#1036, PaddlePaddle/Paddle#35186)", "B054"),
		m("vocabulary-off-by-one", "2", "odd dp=1,tp=4,vocab=parallel", at(some, 0, "embed embed"), shiftVocabulary(1, -1),
			"a rank's part of an uneven vocabulary begins one row early: a token outside counts as inside (NVIDIA/Megatron-LM#1754, apple/ml-cross-entropy#59)", "B066", "B072"),

		m("denominator-summed-twice", "2", "odd dp=1,tp=4,vocab=parallel", at(some, 0, "loss"), fault.OnCalls(denominators, fault.Twice),
			"the sum of exponentials of logits that are whole already is summed over the ranks (NVIDIA/Megatron-LM#7452)", "B065"),
		m("slice-off-by-one", "3", "odd dp=1,tp=4,vocab=parallel", at(1, -1, "layers.0.self_attn.q_proj"), rotateSlice(1, 2, 35),
			"one rank's slice of a query projection begins one row late"),

		m("input-gradient-not-reduced", "4", "nano dp=1,tp=4,vocab=parallel", at(some, 0, "block.1 dmlp"), fault.OnCalls(sums(b(1), mlpGradSum), fault.Skip),
			"the gradient behind a column-parallel layer stays a partial sum: the conjugate of the forward sum is missing (apple/ml-cross-entropy#42)", "B067"),
		m("attention-gradient-not-reduced", "4", "odd dp=1,tp=2", at(some, 0, "block.3 dattn"), fault.OnCalls(sums(b(3), attnGradSum), fault.Skip),
			"the same behind q, k and v of the last block"),

		m("loss-times-ranks", "4", "nano dp=1,tp=2", at(some, 0, "dmlp"), lossTimes(2),
			"the loss's gradient is multiplied by the tensor-parallel ranks, which share one batch (huggingface/transformers#45994)", "B024"),
		m("norm-gradient-averaged", "5", "nano dp=1,tp=2", at(some, 0, "norm.weight"), halvedNormGrads(),
			"gradients of norm weights are averaged over ranks that hold partial ones (EleutherAI/gpt-neox#1259)", "B057"),
		m("norm-gradient-multiplied", "5", "nano dp=1,tp=2", at(some, 0, "norm.weight"), doubleNormGrads(-1),
			"gradients of norm weights, equal on both ranks, are summed over them", "B068"),
		m("norm-gradient-of-one-rank", "5", "odd dp=1,tp=4,vocab=parallel", at(2, 0, "norm.weight"), doubleNormGrads(2),
			"one rank's norm weights get another gradient: the replicas drift apart", "B056", "B058", "B061"),

		m("kv-gradient-not-summed", "6", "odd dp=1,tp=4,vocab=parallel", at(some, 0, "_proj"), fault.OnCalls(ofKV, fault.Skip),
			"two ranks hold one KV head and each keeps its own share of the gradient (pytorch/torchtitan#2577)"),

		m("all-reduce-too-many", "7", "nano dp=1,tp=2", at(some, 0, "block.0"), fault.OnCalls(sums(b(0), attnSum), thenMax),
			"one block reduces its attention output twice; the second time changes nothing but the traffic"),
		m("all-reduce-too-few", "7", "nano dp=1,tp=2", at(some, 0, "block.0"), fault.OnCalls(sums(b(0), attnSum), fault.Skip),
			"one block does not reduce its attention output"),
		m("all-reduce-in-pairs", "7", "nano dp=1,tp=4,vocab=parallel", at(some, 0, "block.0"), fault.OnCalls(sums(b(0), attnSum), func(c *fault.Call) error { return c.Within(c.Comm.Rank()/2, 0) }),
			"one block reduces its attention output over pairs of ranks"),
		m("kv-gradient-summed-twice", "6", "odd dp=2,tp=4"+suite.Epochs, at(4, 0, "all-reduces in group kv"), fault.OnCalls(ofSecondReplica, fault.Twice),
			"the second replica's ranks add the gradients of KV copies twice, as a group of copies that spans replicas does"),
	}, fault.Scalars(contract.Test, "C-TP-001.5", "nano dp=1,tp=2", " of rank")...)
}
