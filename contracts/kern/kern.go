// Package kern is contract C-KERN-001: every kernel of the backend in use gives
// the bits of its definition.
package kern

import "github.com/lockstep-ml/lockstep/contracts/contract"

// id is the contract's.
const id = "C-KERN-001"

// Contract is C-KERN-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: id + "." + n, Says: says, Class: contract.Exact, Reads: reads, Phase: contract.Drilled, Check: check}
	}
	const results = "kernel; golden/kernels.txt"
	return &contract.Contract{
		ID:        id,
		Title:     "Kernels give the defined bits",
		Statement: "Every kernel of the backend in use gives the bits of its definition: for every shape, exponent, stride and alignment, in place or not, in every routine that the backend has and on every path that its threads share, on every device and in every process.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Matrix products have the bits of the definition: every tile and tail, grouped sums, chains longer than a block.", results, right),
			c("2", "Norm, rotary embedding and token embedding have the bits of the definition, with their gradients.", results, right),
			c("3", "Attention and its gradient have the bits of the definition, for every number of tokens, head width and group of heads.", results, right),
			c("4", "Gates, exponentials and the loss have the bits of the definition, from subnormal to overflowing arguments.", results, right),
			c("5", "Elementwise kernels, sums, reductions and optimizer updates have the bits of the definition, in place and strided.", results, right),
			c("6", "Sums of squares and digests are those of integer arithmetic.", results, right),
			c("7", "A kernel writes its outputs and nothing else, memory keeps every bit, and shapes that do not fit are refused.", "kernel", kept),
			c("8", "Every kernel, every routine that the backend lists, and every path that its threads share, ran; the tally that says so counts.", "routine, kernel", ran),
			c("9", "Every device copies to and sums with every other one, and with all, and gives the bits of the definition.", "device", moved),
			c("10", "Every part of a device that computes gives the bits of the definition, and its memory keeps every bit, all of it at once.", "device", whole),
		},
	}
}

const doc = `A kernel is a family of routines: one for each height and width of a tile, each
with and without a mask, for chains that go on, for long vectors, for work that
threads share. Training a small model runs half of them. A wrong lane in the
widest tile is then found by whoever trains a wider model, weeks later and in no
place in particular. So every kernel is drilled by itself, on the backend that
the other contracts run on and with all threads of the machine.

Each process of the run drills its own backend, and from level 2 on every device
of it, each by itself: a rank of the history is a device of a process, and a
finding names its host, index, UUID and PCI address. At level 1 a process drills
one device, and a note says of how many.

The drill (package kernels/drill) makes operands from a seed: sizes at and around
those of tiles, vectors and blocks, in every residue; values of every magnitude,
subnormal to overflowing, with -0, NaN and infinities planted; operands strided,
unaligned, and one the other wherever a kernel permits it; chains longer than a
block, T from 1 to beyond every vector, work large enough to be shared and to be
stored past the caches. The result is compared with that of kernels/ref, which
is the definition in plain Go, bit for bit.

Package ref was compiled for, and runs on, the machine that is being checked. So
its own results are compared too: their digests, kernel by kernel, must be those
of golden/kernels.txt. Where the backend in use is plain Go, that is what the
clauses rest on: the comparison with ref alone would hold a backend against
itself. Those digests are of one seed: with --seed the cases of that seed come on
top, and are no evidence for plain Go.

How each clause judges
  1  Right results by accident for divisible shapes hide wrong tails
     (karpathy/llm.c#445), and offsets that overflow show in large operands only
     (NVIDIA/FasterTransformer#524, PaddlePaddle/Paddle#71935).
  2  A norm's gradient that leaves out the last rows (BobMcDear/attorch#18), a
     sum whose scratch is used twice without a barrier (ml-explore/mlx#2340).
  3  Tiles of queries and keys with two constants for one size
     (Dao-AILab/flash-attention#2337), rows near the end of a sequence
     (Dao-AILab/flash-attention#1778).
  4  A softmax that subtracts a constant overflows for large logits
     (HabanaAI/vllm-fork#275); an exponential is wrong at the ends of its range.
  5  Updates of the last elements, sums in another order, results of operands
     that are one another's output, flushed subnormals.
  6  The norm, the comparison of replicas and every fingerprint rest on them. They
     are held against their definition in integers, not against ref. An addition
     that two threads make to one number is lost now and then
     (fla-org/flash-linear-attention#889).
  7  Guard elements lie round every operand and between its rows; operands that
     are only read are compared. Memory is held against what was written. A case
     that changed what it must not says nothing of its result: clauses 1 to 6
     then lack that case.
  8  A right result proves nothing about code that never ran. The backend counts
     its routines' calls (kernels.Tallier); the clause compares the count before
     and after the drill. A routine that never ran is named and makes the clause
     inconclusive, and so does a backend that offers no count, or one of which a
     whole run called nothing. The backend that says it is plain Go ("ref" and
     "cpu-ref") has one way through each kernel and lists nothing: there the clause
     rests on every kernel having run. A tally that is not true is a violation: it lists
     other routines the second time, counts backwards, or moves while nothing
     runs.
  9  In rounds, in each of which every device has one partner: it copies to that,
     from that, and the two sum; in the end all sum. What came is compared by its
     hash, and read back only where that differs. A device that is wrong by itself
     too (clause 10), or with several others, is the one that is named. Of two
     alone nothing tells whose fault a copy between them is: then the one that has
     the wrong bits is named, and the other one with it. One device alone is
     compared with itself.
  10 A product of equal tiles, four for each multiprocessor, in which each must
     have the bits of one that package ref computed. Then each multiprocessor by
     itself: so many blocks that all are full compute one sum (ref.PartSum) and say
     where; a wrong one is named, and one on which none ran makes the clause
     inconclusive. Memory is written whole, in
     a pattern that no two places have which can be taken for one another, then
     compared, then once more with each bit inverted: 1 MB at level 1, 16 MB at
     level 2, and at level 3 nine tenths of what is free, where the device says how
     much that is. For a device there are two minutes for that: what it had no time for makes
     the clause inconclusive.

How to read a finding
  tensor  the kernel
  got, want
          the bits of the first element that differs
  The message names the case, whose name says shape and kind of values, the
  element, and the routines that ran when the case was run once more; it says so
  where the second time gave another result: a race, or hardware. A kernel that is wrong in shapes
  of one residue has a wrong tail, one that is wrong in shared cases only a race,
  one that is wrong everywhere another formula.`
