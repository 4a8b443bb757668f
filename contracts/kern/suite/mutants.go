package suite

import (
	"math"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// mutants are backends with one defect each.
func mutants() []suite.Mutant {
	m := func(id, clause, on, where string, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: named(where), Rows: rows, ID: id, Clause: "C-KERN-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	const products, norms, attention, gates, sums, squares, memory = "matrix products", "norms and embeddings", "attention", "gates and loss",
		"sums and updates", "squares and digests", "memory"
	out := []suite.Mutant{
		m("one-lane-of-the-widest-tile", "1", products, "MatMulNT", lane("MatMulNT", 6, 64, 5, 37), "one lane of tiles of 6 x 64 loses its last bit"),
		m("product-tail", "1", products, "MatMulNN", lastColumn("MatMulNN", 0), "the last column is left out where vectors do not cover it (karpathy/llm.c#445)"),
		m("second-block-of-k", "1", products, "MatMulNT", firstBlock(), "chains end after their first block"),
		m("product-ungrouped", "1", products, "MatMulNT", ungrouped(), "groups of a product are one chain: right, but another last bit"),
		m("product-unstrided", "1", products, "MatMulNN", unstrided(), "rows of a strided operand are read as if they were adjacent", "L25"),
		m("product-shared", "1", products, "MatMulTN", shared("MatMulTN", sharedElements), "one bit is wrong in products that are large enough to be shared between threads"),
		m("norm-last-rows", "2", norms, "RMSNormGrad", floorOfRows(), "rows that blocks do not cover are left out of the gradient of a norm's weight (BobMcDear/attorch#18)", "B133"),
		m("norm-race", "2", norms, "RMSNormGrad", nowAndThen("RMSNormGrad"), "scratch is used twice without a barrier: the gradient of a norm's weight is wrong now and then (ml-explore/mlx#2340)", "B131"),
		m("rope-inverse-tail", "2", norms, "Rope", inverseTail(), "the inverse rotation turns the last element of a half head the wrong way where a vector does not cover it"),
		m("embedding-whole-table", "2", norms, "Embedding", wholeTable(), "a part of the vocabulary is looked up as if it were the whole"),
		m("embedding-shared", "2", norms, "EmbeddingGrad", shared("EmbeddingGrad", sharedElements), "one bit of the embedding's gradient is wrong where threads share it"),
		m("attention-beyond-64", "3", attention, ": o[", longSequences(), "the last query is wrong for more tokens than the widest vector has elements (Dao-AILab/flash-attention#2337)"),
		m("attention-one-key-group", "3", attention, "AttentionGrad", oneKeyGroup(), "gradients of shared keys are summed in one chain: right, but another last bit"),
		m("gate-saturates", "4", gates, "SwiGLU", saturated(), "the gate counts as open for z above 6"),
		m("softmax-constant", "4", gates, "LogitsExpSum", constantMaximum(), "a constant is subtracted in place of the row's maximum (HabanaAI/vllm-fork#275)", "B140"),
		m("exponential-flushed", "4", gates, "LogitsExpSum", flushed("LogitsExpSum"), "subnormal exponentials are zero"),
		m("loss-tail", "4", gates, "CrossEntropy", lastColumn("CrossEntropy", 1), "the last logit has no gradient where vectors do not cover the vocabulary"),
		m("subnormals-flushed", "5", sums, "Add", flushed("Add"), "subnormal sums are zero"),
		m("residual-in-place", "5", sums, "Residual", overwritten(), "an output that is an operand is overwritten before that is read"),
		m("bias-first-row", "5", sums, "AddBias", firstRow(), "a bias enters the first row alone where rows are strided"),
		m("update-tail", "5", sums, "AdamW", wholeVectors(), "the last elements are not updated where vectors do not cover them"),
		m("reduction-in-order", "5", sums, "Reduce", inOrder(4, math.MaxInt), "sources are added one after the other in place of a tree: right, but another last bit"),
		m("reduction-of-18-to-33", "5", sums, "_src", inOrder(18, 33), "from 18 to 33 sources are added one after the other: no fewer, and no more"),
		m("squares-lost", "6", squares, "SumSquares", lostAddition(), "of two threads' additions to one sum one is lost (fla-org/flash-linear-attention#889)", "B132"),
		m("squares-lost-now-and-then", "6", squares, "_again", rarelyLost(), "of hundreds of sums that threads share one is lost: a race", "B132"),
		m("index-of-32-bits", "6", squares, "Hash", narrowIndex(), "elements are counted in 32 bits (PaddlePaddle/Paddle#71935)", "B141"),
		m("minus-zero-is-zero", "6", squares, "HashChanged", unequalZeros(), "a change from -0 to +0 is none"),
		m("store-past-the-end", "7", sums, "Scale", pastTheEnd("Scale"), "a vector that is not full stores beyond the end (Dao-AILab/flash-attention#2337)", "B139"),
		m("scratch-in-input", "7", norms, "operand changed: x[0]", scratchInInput(), "an operand that is only read is used as scratch"),
		m("memory-not-zero", "7", memory, "Memory", dirty(), "memory is lent that is not zero"),
		m("shapes-not-checked", "7", memory, "Misuse", lenient(), "operands of different sizes are accepted"),
	}
	out = append(out,
		m("one-part-of-a-device", "10", surveyName, "equal ones", onePart(0), "one of the parts of a device that compute side by side gives a wrong bit"),
		m("one-multiprocessor", "10", surveyName, "wrong sum, by number: [1]", lame(0), "one multiprocessor computes another sum than the others"),
		m("one-bit-of-memory", "10", surveyName, "does not keep", oneBit(0), "one bit of memory does not keep what is written"),
		m("one-line-of-addresses", "10", surveyName, "does not keep", oneLine(0), "two places of memory are one: what is written to the one is in the other"),
		m("last-bytes-of-peers", "9", surveyName, "differs", lastBytes(0), "the last bytes of what comes from other devices are not taken over"))
	for _, l := range []struct {
		id, where, says string
		tally           func(asked int) int
	}{
		{"tally-runs-on", uncalled, "the tally counts calls of a routine that nothing calls", func(asked int) int { return asked }},
		{"tally-backwards", uncalled, "the tally counts backwards", func(asked int) int { return max(0, 1000-asked) }},
		{"tally-forgets", "lists other routines", "the tally lists what has run, in place of all that there is", func(asked int) int { return min(asked, 1) - 1 + 5*min(asked, 1) }},
	} {
		out = append(out, suite.Mutant{At: named(l.where), ID: l.id, Clause: ranClause, On: routines, Break: lies(l.tally), Says: l.says})
	}
	return out
}

// named is the place of a kernel, of an operand, or of what a tally says of a
// routine. A drill has no ranks and no steps.
func named(what string) suite.Place { return suite.At(suite.Any, suite.Any, what) }
