package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	m := fault.Mutants("C-TP-001")
	b := model.BlockUnit
	return []suite.Mutant{
		m("bit-flipped-in-columns", "1", "nano dp=1,tp=2", fault.Corrupt(1, 0, 0),
			"one rank's first query projection returns one wrong last bit, once"),
		m("key-columns-corrupt", "1", "odd dp=1,tp=4,vocab=parallel", fault.Corrupt(3, 1, 30),
			"one of two copies of a KV head is computed wrong on one rank (sgl-project/sglang#19086)"),

		m("row-output-not-reduced", "2", "nano dp=1,tp=2", fault.OnCalls(sums(b(2), mlpSum), fault.Skip),
			"one block's MLP output stays a partial sum on every rank"),
		m("bias-on-every-rank", "2", "odd dp=1,tp=2,vocab=parallel untied with linear biases", biasTimes(2),
			"row-parallel biases are added once per rank (huggingface/text-generation-inference#1036, PaddlePaddle/Paddle#35186)"),
		m("vocabulary-off-by-one", "2", "odd dp=1,tp=4,vocab=parallel", shiftVocabulary(1, -1),
			"a rank's part of an uneven vocabulary begins one row early: a token outside counts as inside (NVIDIA/Megatron-LM#1754, apple/ml-cross-entropy#59)"),

		m("slice-off-by-one", "3", "odd dp=1,tp=4,vocab=parallel", rotateSlice(1, 2, 35),
			"one rank's slice of a query projection begins one row late"),

		m("input-gradient-not-reduced", "4", "nano dp=1,tp=4,vocab=parallel", fault.OnCalls(sums(b(1), mlpGradSum), fault.Skip),
			"the gradient behind a column-parallel layer stays a partial sum: the conjugate of the forward sum is missing (apple/ml-cross-entropy#42)"),
		m("attention-gradient-not-reduced", "4", "odd dp=1,tp=2", fault.OnCalls(sums(b(3), attnGradSum), fault.Skip),
			"the same behind q, k and v of the last block"),

		m("norm-gradient-multiplied", "5", "nano dp=1,tp=2", doubleNormGrads(-1),
			"gradients of norm weights, equal on both ranks, are summed over them"),
		m("norm-gradient-of-one-rank", "5", "odd dp=1,tp=4,vocab=parallel", doubleNormGrads(2),
			"one rank's norm weights get another gradient: the replicas drift apart"),

		m("kv-gradient-not-summed", "6", "odd dp=1,tp=4,vocab=parallel", fault.OnCalls(ofKV, fault.Skip),
			"two ranks hold one KV head and each keeps its own share of the gradient (pytorch/torchtitan#2577)"),

		m("kv-gradient-summed-twice", "6", "odd dp=2,tp=4"+suite.Epochs, fault.OnCalls(ofSecondReplica, fault.Twice),
			"the second replica's ranks add the gradients of KV copies twice, as a group of copies that spans replicas does"),

		m("all-reduce-too-many", "7", "nano dp=1,tp=2", fault.OnCalls(sums(b(0), attnSum), thenMax),
			"one block reduces its attention output twice; the second time changes nothing but the traffic"),
	}
}
