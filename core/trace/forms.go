package trace

import (
	"reflect"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Form is what the events of one kind look like. The forms are the format: Read
// refuses an event that breaks its form, and the package comment and the JSON
// schema of history files say what the forms say.
type Form struct {
	Kind Kind
	Says string // when one is recorded
	// Needs names the fields, as in JSON, that must not be zero; May those that
	// may be set besides. No other may but kind, rank and step.
	Needs, May []string
	// What and Op are the values that these fields may have; nil is any.
	What []Value
	Op   []string
	// First is the least step: -1 where one may be recorded before the first.
	First int
}

// Value is a value of What and what it stands for.
type Value struct{ Name, Says string }

// Forms lists the forms of all kinds, in the order in which a training run
// first records one.
func Forms() []Form {
	return append(append(before(), during()...), after()...)
}

// before are the kinds that a run can begin with.
func before() []Form {
	return []Form{
		{Kind: KindSpan, Says: "once per buffer of weights, gradients and moments (What): where it lies in memory, Count elements",
			Needs: []string{"what", "span"}, May: []string{"count"}, First: -1},
		{Kind: KindResume, Says: "the run goes on from a checkpoint: Step comes next, Count optimizer steps are taken; the digests that follow have the Step before it",
			May: []string{"count"}},
		{Kind: KindDigest, Says: "Count elements [Lo, Hi) of the rank's flat buffers, which lie in parameter Tensor of Unit; Squares the sum of their squares; Data the elements where the run captured them; Once where they count",
			Needs: []string{"what", "tensor", "digest"}, May: []string{"unit", "worker", "lo", "hi", "count", "squares", "once", "data"}, First: -1,
			What: []Value{
				{Weight, "after the step; initial at Step -1"},
				{MomentM, "of AdamW, after the step"},
				{MomentV, "of AdamW, after the step"},
				{Momentum, "of SGD, after the step"},
				{WorkerGrad, "one logical Worker's gradient, before any sum over workers"},
				{Grad, "the reduced gradient, before clipping"},
				{Updated, "weights that a rank owns alone, after its update and before it publishes them"},
			}},
		{Kind: KindComm, Says: "one operation of a communicator, recorded beneath all decorators: Op on Unit [Lo, Hi) in a Group of Ranks; Moved -1 where nobody counted; Text the error it ended with",
			Needs: []string{"op", "ranks"},
			May:   []string{"group", "unit", "overlap", "seq", "peer", "lo", "hi", "count", "bytes", "moved", "text"}, First: -1,
			Op: operations()},
	}
}

// operations are the values of Op of a communicator.
func operations() []string {
	return []string{names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast, names.OpSend, names.OpRecv,
		names.OpBarrier, names.OpAllReduceInt, names.OpAllGatherBytes, names.OpSplit}
}

// passes are the values of What that name the direction of a pass.
func passes() []Value { return []Value{{Forward, ""}, {Backward, ""}} }

// during are the kinds of a step.
func during() []Form {
	return []Form{
		{Kind: KindData, Says: "per Worker and Micro: IDs of the sequences, -1 for padding, Count of valid tokens, Digest of the tokens and targets as integers",
			May: []string{"worker", "micro", "ids", "count", "digest"}},
		{Kind: KindTokens, Says: "Count valid tokens of the global batch, as agreed by all ranks",
			May: []string{"count"}},
		{Kind: KindPhase, Says: "the pass of Worker's Micro is done with Unit on this rank",
			Needs: []string{"what", "unit"}, May: []string{"worker", "micro"}, What: passes()},
		{Kind: KindTap, Says: "an activation Tensor of Unit, or its gradient (backward): columns [Lo, Hi) of Count, of micro-batch Micro; Data its rows where the run captured them",
			Needs: []string{"what", "unit", "tensor", "digest"}, May: []string{"micro", "lo", "hi", "count", "data"}, What: passes()},
		{Kind: KindMessage, Says: "what crossed boundary Seq between pipeline stages, as either side has it: Lo rows, Hi columns, Count elements; Peer the other stage",
			Needs: []string{"op", "what", "digest"}, May: []string{"micro", "peer", "seq", "lo", "hi", "count"}, What: passes(),
			Op: []string{names.OpSend, names.OpRecv}},
		{Kind: KindLive, Says: "Count micro-batches whose activations a pipeline stage holds",
			May: []string{"count"}},
		{Kind: KindGather, Says: "what became of Unit's weights, Count elements, in ZeRO stage 3; Digest what a pass found (use) and left (release)",
			Needs: []string{"what", "unit"}, May: []string{"micro", "count", "digest"}, First: -1,
			What: []Value{{names.Gather, ""}, {names.Use, ""}, {names.Release, ""}}},
		{Kind: KindLeaf, Says: "Worker's gradient of Unit entered the rank's partial sum",
			Needs: []string{"unit"}, May: []string{"worker"}},
		{Kind: KindIssue, Says: "the reduction of Unit was handed to the communicator",
			Needs: []string{"unit"}, First: -1},
		{Kind: KindScalar, Says: "a Value of the step, Bits where it is a float32; Once on the rank whose copy counts",
			Needs: []string{"what"}, May: []string{"value", "bits", "once"}, What: []Value{
				{Loss, "mean over the valid tokens of the global batch"},
				{Norm, "of the reduced gradient"},
				{Coef, "factor of clipping"},
				{LR, "learning rate"},
				{Counter, "optimizer steps taken"},
			}},
		{Kind: KindSkip, Says: "the step was not taken: Text says why",
			Needs: []string{"text"}},
	}
}

// after are the kinds of the end of a step and of a run, and those of runs that
// do not train.
func after() []Form {
	return []Form{
		{Kind: KindChanged, Says: "per parameter Tensor of Unit: Count and Digest of the elements whose bits the step changed, as if each had the bits 1",
			Needs: []string{"tensor", "digest"}, May: []string{"unit", "count", "once"}},
		{Kind: KindMemory, Says: "by purpose (What): live (Count) and peak (Bytes) bytes of the step",
			Needs: []string{"what"}, May: []string{"count", "bytes"}},
		{Kind: KindDiff, Says: "the first element in which the replicas of two Ranks differ, Index of Tensor: bits Want on the first, Got on the second",
			Needs: []string{"what", "tensor", "ranks"}, May: []string{"index", "got", "want"}, First: -1,
			What: []Value{{Weight, ""}, {MomentM, ""}, {MomentV, ""}, {Momentum, ""}}},
		{Kind: KindUnmoved, Says: "after the last step, per parameter Tensor of Unit: Ranges of its Count elements that still have their initial bits",
			Needs: []string{"tensor"}, May: []string{"unit", "ranges", "count", "once"}},
		{Kind: KindDrill, Says: "of a drill of communicators: one operation in a group of Ranks and the Digest of its result; Text the error it ended with",
			Needs: []string{"op"}, May: []string{"what", "unit", "ranks", "count", "digest", "text"},
			What: []Value{{"mismatch", "the ranks' operations did not fit: Unit says in what"}},
			Op:   operations()},
		{Kind: KindRefusal, Says: "a damaged checkpoint (What, Unit the file) was opened: Text why it was refused, empty where it was not",
			May: []string{"what", "unit", "text"}},
		{Kind: KindKernel, Says: "of a drill of kernels: Unit, a case of kernel Op, was run and Count elements were compared with package ref's, which have the Digest; Tensor is the first that differs, with bits Got and not Want; Text what is wrong",
			Needs: []string{"op", "unit", "what"}, May: []string{"tensor", "count", "digest", "got", "want", "text"},
			What: []Value{
				{Same, "all is as it must be"},
				{Output, "an element that the kernel sets has other bits"},
				{Input, "an operand that is only read was changed"},
				{Guard, "memory beside the operands, or between their rows, was changed"},
				{Returned, "what the kernel gives beside tensors is wrong"},
				{Failed, "a panic, an error, or a demand that is not met"},
			},
			Op: drilled()},
		{Kind: KindRoutine, Says: "of a drill of kernels: routine Unit of the backend has run Count times since that was opened; without Unit: how many routines it lists",
			Needs: []string{"what"}, May: []string{"unit", "count"},
			What: []Value{{Before, "the first case"}, {After, "the last case"}, {Idle, "again after the last case, while nothing ran"}}},
		{Kind: KindDevice, Says: "of a drill of devices: Count elements on the rank's device were compared with what they must be; Index the first that differs, with bits Got and not Want; Text what is wrong",
			Needs: []string{"what"}, May: []string{"unit", "peer", "count", "bytes", "index", "got", "want", "text"},
			What: []Value{
				{Parts, "a product large enough for all parts of the device that compute side by side"},
				{Each, "no elements: Count parts of the device, of Unit that it has, each by itself, with a sum; Index the part that is wrong"},
				{Kept, "its memory after all of that was written: Bytes of it were to be"},
				{Copied, "what Peer sent"},
				{Summed, "the sum of its own vector and Peer's"},
				{All, "the sum of the vectors of all ranks"},
				{Watched, "no comparison: device Unit was looked at while ranks computed, but for what Text says"},
				{Unwatched, "device Unit was not, for the reason that Text says"},
				{Fault, "what happened to device Unit meanwhile that must not"},
			}},
		{Kind: KindStored, Says: "Count elements of parameter Tensor in the checkpoint that was stored after the step, as another reader found them in its files",
			Needs: []string{"what", "tensor", "digest"}, May: []string{"count"},
			What: []Value{{Weight, ""}, {MomentM, ""}, {MomentV, ""}, {Momentum, ""}}},
		{Kind: KindFile, Says: "a file (Unit) of that checkpoint: Bytes, and what is in them, JSON or base64, as Text",
			Needs: []string{"unit"}, May: []string{"bytes", "text"}},
		{Kind: KindTurns, Says: "of a run whose goroutines take turns, after its end: the schedule (What, and Seq of a seed), Count turns of this rank's goroutines, Index uses of memory that were checked, and the Digest of the order of all turns",
			Needs: []string{"what", "digest"}, May: []string{"seq", "count", "index"}, First: -1,
			What: []Value{{"seed", ""}, {"lowest rank first", ""}, {"highest rank first", ""}, {"one after the other", ""}, {"reductions late", ""}, {"reductions at once", ""}}},
		{Kind: KindHazard, Says: "of such a run, after turns: Text says what a schedule shows; Unit what is moved meanwhile, Step that of the rank's last operation",
			Needs: []string{"what", "text"}, May: []string{"unit"}, First: -1,
			What: []Value{
				{Unordered, "two uses of memory, one of which writes, of which neither comes before the other"},
				{Released, "a use of memory that was given up and not written since"},
				{Deadlock, "no goroutine can go on"},
				{Failed, "the rank ended in a panic or an error"},
			}},
		{Kind: KindEnd, Says: "once, behind all else that the rank records: the run ended regularly; a history without it is cut off", First: -1},
	}
}

// drilled are the values of Op of a drill of kernels: every kernel, and what is
// demanded besides, of memory and of calls whose shapes do not fit.
func drilled() []string {
	k := reflect.TypeFor[kernels.Kernels]()
	out := []string{"Memory", "Misuse"}
	for i := range k.NumMethod() {
		out = append(out, k.Method(i).Name)
	}
	return out
}
