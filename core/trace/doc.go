// Package trace is the evidence of a run: events, per-rank histories as NDJSON
// files, and their merge. Training emits events; contracts judge them. A
// history says nothing about how it was made, so goroutine ranks, processes,
// files of last night and another framework's adapter are judged alike.
//
// # Files
//
// A rank's file has a Header in its first line and an Event in every other, in
// program order, as JSON objects; [JSONSchema] describes a line. Fields that are
// zero are left out, but for kind, rank, step and the value of a scalar. Step
// counts optimizer steps from 0. Where a rank holds part of a parameter (tensor-parallel slice, ZeRO
// shard) a digest covers that part, and Count says how many elements: digests
// add up.
//
// Read refuses a line that is not of this form, by file, line and field: kinds,
// fields and values that are not in the table, fields that a kind needs and does
// not have; negative counts; lo beyond hi (of all but messages); ranks that are
// there twice or outside the world; data of other than count elements; ranges
// that do not ascend or have not count elements; more elements that are not
// finite than count (of digest and changed). A line that is equal to an earlier one
// of its file, of what can happen once only, is left out, and whoever judges the
// history is told that the file is damaged.
//
// # Kinds of events
//
//	span     once per buffer of weights, gradients and moments (What): where it lies in memory, Count
//	         elements
//	         needs what, span; may have count; step from -1
//	resume   the run goes on from a checkpoint: Step comes next, Count optimizer steps are taken; the
//	         digests that follow have the Step before it
//	         may have count
//	digest   Count elements [Lo, Hi) of the rank's flat buffers, which lie in parameter Tensor of Unit;
//	         Squares the sum of their squares; Data the elements where the run captured them; Once where
//	         they count
//	         needs what, tensor, digest; may have unit, worker, lo, hi, count, squares, once, data; step
//	         from -1
//	          what weight       after the step; initial at Step -1
//	          what m            of AdamW, after the step
//	          what v            of AdamW, after the step
//	          what momentum     of SGD, after the step
//	          what grad.worker  one logical Worker's gradient, before any sum over workers
//	          what grad         the reduced gradient, before clipping
//	          what updated      weights that a rank owns alone, after its update and before it publishes
//	                            them
//	comm     one operation of a communicator, recorded beneath all decorators: Op on Unit [Lo, Hi) in a
//	         Group of Ranks; Moved -1 where nobody counted; Text the error it ended with
//	         needs op, ranks; may have group, unit, overlap, seq, peer, lo, hi, count, bytes, moved, text;
//	         step from -1
//	         op: all-reduce, reduce-scatter, all-gather, broadcast, send, recv, barrier, all-reduce-int,
//	         all-gather-bytes, split
//	data     per Worker and Micro: IDs of the sequences, -1 for padding, Count of valid tokens, Digest of
//	         the tokens and targets as integers
//	         may have worker, micro, ids, count, digest
//	tokens   Count valid tokens of the global batch, as agreed by all ranks
//	         may have count
//	phase    the pass of Worker's Micro is done with Unit on this rank
//	         needs what, unit; may have worker, micro
//	         what: forward, backward
//	tap      an activation Tensor of Unit, or its gradient (backward): columns [Lo, Hi) of Count, of
//	         micro-batch Micro; Data its rows where the run captured them
//	         needs what, unit, tensor, digest; may have micro, lo, hi, count, data
//	         what: forward, backward
//	message  what crossed boundary Seq between pipeline stages, as either side has it: Lo rows, Hi columns,
//	         Count elements; Peer the other stage
//	         needs op, what, digest; may have micro, peer, seq, lo, hi, count
//	         what: forward, backward
//	         op: send, recv
//	live     Count micro-batches whose activations a pipeline stage holds
//	         may have count
//	gather   what became of Unit's weights, Count elements, in ZeRO stage 3; Digest what a pass found (use)
//	         and left (release)
//	         needs what, unit; may have micro, count, digest; step from -1
//	         what: gather, use, release
//	leaf     Worker's gradient of Unit entered the rank's partial sum
//	         needs unit; may have worker
//	issue    the reduction of Unit was handed to the communicator
//	         needs unit; step from -1
//	scalar   a Value of the step, Bits where it is a float32; Once on the rank whose copy counts
//	         needs what; may have value, bits, once
//	          what loss         mean over the valid tokens of the global batch
//	          what norm         of the reduced gradient
//	          what coef         factor of clipping
//	          what lr           learning rate
//	          what counter      optimizer steps taken
//	skip     the step was not taken: Text says why
//	         needs text
//	changed  per parameter Tensor of Unit: Count and Digest of the elements whose bits the step changed, as
//	         if each had the bits 1
//	         needs tensor, digest; may have unit, count, once
//	memory   by purpose (What): live (Count) and peak (Bytes) bytes of the step
//	         needs what; may have count, bytes
//	diff     the first element in which the replicas of two Ranks differ, Index of Tensor: bits Want on the
//	         first, Got on the second
//	         needs what, tensor, ranks; may have index, got, want; step from -1
//	         what: weight, m, v, momentum
//	unmoved  after the last step, per parameter Tensor of Unit: Ranges of its Count elements that still have
//	         their initial bits
//	         needs tensor; may have unit, ranges, count, once
//	drill    of a drill of communicators: one operation in a group of Ranks and the Digest of its result;
//	         Text the error it ended with
//	         needs op; may have what, unit, ranks, count, digest, text
//	          what mismatch     the ranks' operations did not fit: Unit says in what
//	         op: all-reduce, reduce-scatter, all-gather, broadcast, send, recv, barrier, all-reduce-int,
//	         all-gather-bytes, split
//	refusal  a damaged checkpoint (What, Unit the file) was opened: Text why it was refused, empty where it
//	         was not
//	         may have what, unit, text
//	kernel   of a drill of kernels: Unit, a case of kernel Op, was run and Count elements were compared with
//	         package ref's, which have the Digest; Tensor is the first that differs, with bits Got and not
//	         Want; Text what is wrong
//	         needs op, unit, what; may have tensor, count, digest, got, want, text
//	          what same         all is as it must be
//	          what output       an element that the kernel sets has other bits
//	          what input        an operand that is only read was changed
//	          what guard        memory beside the operands, or between their rows, was changed
//	          what returned     what the kernel gives beside tensors is wrong
//	          what failed       a panic, an error, or a demand that is not met
//	         op: Memory, Misuse, AdamW, Add, AddBias, Attention, AttentionGrad, ColumnSum, Copy,
//	         CrossEntropy, Embedding, EmbeddingGrad, Fill, Hash, HashChanged, LogitsExpSum, LogitsMax,
//	         MatMulNN, MatMulNT, MatMulTN, RMSNorm, RMSNormGrad, Reduce, Residual, Rope, SGD, Scale,
//	         SumSquares, SwiGLU, SwiGLUGrad
//	routine  of a drill of kernels: routine Unit of the backend has run Count times since that was opened;
//	         without Unit: how many routines it lists
//	         needs what; may have unit, count
//	          what before       the first case
//	          what after        the last case
//	          what idle         again after the last case, while nothing ran
//	device   of a drill of devices: Count elements on the rank's device were compared with what they must
//	         be; Index the first that differs, with bits Got and not Want; Text what is wrong
//	         needs what; may have unit, peer, count, bytes, index, got, want, text
//	          what parts        a product large enough for all parts of the device that compute side by side
//	          what each part    no elements: Count parts of the device, of Unit that it has, each by itself,
//	                            with a sum; Index the part that is wrong
//	          what kept         its memory after all of that was written: Bytes of it were to be
//	          what copied       what Peer sent
//	          what summed       the sum of its own vector and Peer's
//	          what all          the sum of the vectors of all ranks
//	          what watched      no comparison: device Unit was looked at while ranks computed, but for what
//	                            Text says
//	          what not watched  device Unit was not, for the reason that Text says
//	          what fault        what happened to device Unit meanwhile that must not
//	stored   Count elements of parameter Tensor in the checkpoint that was stored after the step, as another
//	         reader found them in its files
//	         needs what, tensor, digest; may have count
//	         what: weight, m, v, momentum
//	file     a file (Unit) of that checkpoint: Bytes, and what is in them, JSON or base64, as Text
//	         needs unit; may have bytes, text
//	turns    of a run whose goroutines take turns, after its end: the schedule (What, and Seq of a seed),
//	         Count turns of this rank's goroutines, Index uses of memory that were checked, and the Digest
//	         of the order of all turns
//	         needs what, digest; may have seq, count, index; step from -1
//	         what: seed, lowest rank first, highest rank first, one after the other, reductions late,
//	         reductions at once
//	hazard   of such a run, after turns: Text says what a schedule shows; Unit what is moved meanwhile, Step
//	         that of the rank's last operation
//	         needs what, text; may have unit; step from -1
//	          what unordered    two uses of memory, one of which writes, of which neither comes before the
//	                            other
//	          what released     a use of memory that was given up and not written since
//	          what deadlock     no goroutine can go on
//	          what failed       the rank ended in a panic or an error
//	end      once, behind all else that the rank records: the run ended regularly; a history without it is
//	         cut off
//	         no other fields; step from -1
//
// # Digests
//
// A digest identifies a set of elements of a named tensor, whatever their order
// and however they are spread over ranks. To compute one in another language,
// with all arithmetic on unsigned 64-bit integers, modulo 2^64:
//
//  1. id: the tensor's name in UTF-8, hashed by FNV-1a: begin with
//     14695981039346656037; for each byte, exclusive-or it into the low 8 bits,
//     then multiply by 1099511628211.
//  2. index: the element's place in the whole, row-major tensor, from 0, wherever
//     this rank holds it. Element (r, c) of a slice of a matrix whose rows have
//     stride elements and whose first element has the index first is
//     first + r*stride + c.
//  3. bits: the element as IEEE 754 binary32, taken as a 32-bit integer and
//     extended by zeros; every NaN is 0x7fc00000. -0 is 0x80000000, not 0.
//     Elements of a narrower type are widened first.
//
// These three give two mixes, a and b, where shifts to the right bring in zeros:
//
//	x = (id + (index+1)*0x9e3779b97f4a7c15) xor (bits*0xbf58476d1ce4e5b9 + 0xbf58476d1ce4e5b9)
//	x = (x xor (x >> 32)) * 0x94d049bb133111eb
//	a = x xor (x >> 29)
//	y = (a xor (a >> 32)) * 0xff51afd7ed558ccd
//	b = y xor (y >> 32)
//
// A is the sum of a over the elements, B the sum of b, and NonFinite counts those
// that are NaN or infinite. The digest of no elements is zero. Digests of parts that share no element add up, member
// by member, to that of the whole. As text a digest is A, then B, as 16 lower-case
// hexadecimal digits each, followed by "!" and NonFinite in decimal where that is
// not 0. testdata/digest-vectors.json has examples of every step.
//
// The digest of a data event is of two tensors together, named tokens and
// targets: matrices with a row for every sequence of the micro-batch, in its
// order, and a column for every position, of a sequence's padding too. Their
// elements are integers, whose bits are those of a 32-bit two's complement; a
// position that predicts nothing has the target -1. No rule about NaN applies to
// them, and NonFinite is 0.
package trace
