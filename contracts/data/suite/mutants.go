package suite

import (
	"bytes"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// mutants are broken runs, at least one per clause. All of their ranks agree.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	m := func(id, clause, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-DATA-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	const drops, sharded, pads, threes, odd = "nano dp=4,microbatches=4 bytes", "nano dp=2,pp=2,zero=2 bytes",
		"nano dp=2,zero=3 bytes padded", "odd dp=3 bytes", "odd dp=2,tp=2,microbatches=6 bytes padded"
	given := func(id, says string, change func([]byte) []byte) suite.Mutant {
		return suite.Mutant{At: at(-1, 0, "other bytes than text"), ID: id, Clause: "C-DATA-001.3", On: drops, Break: loaded(change), Says: says}
	}
	return []suite.Mutant{
		m("epoch-begins-late", "1", drops, at(some, 2, "other sequences"), late(2), "every epoch but the first begins with its second step"),
		m("third-epoch-begins-late", "1", "nano dp=2"+again, at(some, 2*epoch, "other sequences"), lateFrom(2, epoch),
			"epochs begin with their second step from the third on"),
		m("fifth-epoch-begins-late", "1", "odd dp=1"+again+", padded", at(some, 4*(epoch+1), "other sequences"), lateFrom(4, epoch+1),
			"the same from the fifth on, where the last step of each is padded"),
		m("sequences-of-16-bits", "1", "nano dp=2"+many.Suffix(), at(some, many.Step, "other sequences"), narrowed(perStep, func(n int) int { return int(uint16(n)) }),
			"the sequences before a step are counted in 16 bits"),
		m("sequences-of-32-bits", "1", "odd dp=2"+most.Suffix(), at(some, most.Step, "other sequences"), narrowed(perStep, func(n int) int { return int(int32(n)) }),
			"the sequences before a step are counted in 32 bits, with a sign", "B141"),
		m("padded-step-forgotten", "1", pads, at(some, 2, "other sequences"), dropPadded(3),
			"the sequences that do not fill a step are left out where they should be padded"),
		m("neighbour's-share", "1", odd, at(some, 0, "other sequences"), neighbour(), "every logical worker takes its neighbour's sequences: none is lost"),
		m("share-rotated", "1", sharded, at(some, 0, "other sequences"), rotated(), "a worker takes its own sequences in another order"),

		m("cut-into-fewer", "2", odd, at(some, 0, "another number of sequences"), fault.OnConfig(func(_ int, c *spec.Config) { c.Plan.MicroBatches = 2 }),
			"micro-batches hold more sequences than the plan says: activations need more memory, sums are the same"),
		m("cut-into-more", "2", "odd dp=4,microbatches=3 bytes", at(0, 0, "another number of sequences"), fault.OnConfig(func(_ int, c *spec.Config) { c.Plan.MicroBatches++ }),
			"micro-batches hold fewer sequences than the plan says: a pipeline of them takes longer"),
		m("cut-by-other-workers", "2", sharded, at(some, 0, "of another logical worker"), fault.OnConfig(func(_ int, c *spec.Config) { c.Plan.Zero = 0 }),
			"ranks walk the workers of another placement"),
		m("one-micro-batch-more", "2", "odd dp=4,microbatches=3 bytes", at(2, 0, "beyond those of the plan"), fault.OnConfig(func(rank int, c *spec.Config) {
			if rank == 2 {
				c.Plan.MicroBatches++
			}
		}), "one rank goes on to a micro-batch more, which has no sequence: nothing comes of it but time"),

		m("targets-not-shifted", "3", threes, at(some, 0, "other tokens or targets"), rows(unshifted), "every token is its own target"),
		m("seven-bits", "3", drops, at(some, 0, "other tokens or targets"), rows(seven), "tokens lose their eighth bit: English text shows nothing"),
		m("blank-not-ignored", "3", odd, at(some, 0, "(sequences [5])"), rows(heard), "a sequence to be ignored is learned"),

		given("text-without-its-last-byte", "the last byte of the text is lost when it is read", func(x []byte) []byte { return x[:len(x)-1] }),
		given("line-ends-converted", "the text is read as text: two bytes that end a line become one", func(x []byte) []byte { return bytes.ReplaceAll(x, []byte("\r\n"), []byte("\n")) }),
		given("text-as-utf-8", "bytes that are no text are replaced when it is read", func(x []byte) []byte { return []byte(strings.ToValidUTF8(string(x), "?")) }),

		m("padding-counted", "4", threes, at(some, 0, "counts other valid tokens than"), rows(counts), "padding is a target and is counted"),
		m("count-off-by-one", "4", sharded, at(some, 0, "in the global batch"), fault.Tokens(1), "all ranks count one valid token too many: every gradient is scaled (NVIDIA/TransformerEngine#2476)"),
		m("count-off-by-minus-one", "4", sharded, at(some, 0, "in the global batch"), fault.Tokens(-1), "all ranks count one valid token too few"),
		m("sequences-undercounted", "4", pads, at(some, 0, "counts other valid tokens than"), rows(undervalued), "every sequence claims one valid token fewer than it has"),
		m("sequences-miscounted", "4", pads, at(some, 0, "counts other valid tokens than"), rows(valid), "every sequence claims one valid token more than it has"),
	}
}
