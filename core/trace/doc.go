// Package trace is the evidence of a run: events, per-rank histories as NDJSON
// files, and their merge. Training emits events; contracts judge them. A
// history says nothing about how it was made, so goroutine ranks, processes,
// files of last night and another framework's adapter are judged alike.
//
// # What a training run records, per rank, in program order
//
//	header    once, in the file's first line: who, what plan, the Spec that replays the run
//	span      once per buffer kind ("weight", "grad", "m", "v"): where it lies in memory
//	digest    What "weight" (and moments) of every parameter, at Step -1 (initial)
//	resume    where a run goes on from a checkpoint; the digests that follow have the Step before it
//	data      per (worker, micro): IDs of the sequences, Count of valid tokens
//	tokens    Count: valid tokens of the global batch, as agreed by all ranks
//	phase     What "forward" or "backward", Unit, Worker, Micro: done on this rank
//	digest    What "grad.worker": one logical worker's gradient of one parameter, before any sum over workers
//	leaf      Worker, Unit: this worker's gradient entered the rank's partial sum
//	issue     Unit: the reduction of this unit was handed to the communicator
//	comm      Op, Group, Ranks, Overlap, Seq, Count, Bytes, Unit, Lo, Hi: one collective, recorded beneath all decorators
//	digest    What "grad": the reduced gradient of one parameter, before clipping
//	scalar    What "loss", "norm", "coef", "lr", "counter" (optimizer steps taken)
//	skip      the step was not taken: Text says why
//	digest    What "updated": the weights that a rank owns alone, after its update and before it publishes them
//	digest    What "weight", "m", "v" (AdamW) or "momentum" (SGD) after the step
//	changed   per parameter: Count and Digest of the elements whose bits the step changed
//	diff      first element in which two ranks' replicas differ (ranks descend to it together)
//	gather    What "gather", "use" or "release" of a unit's weights (ZeRO stage 3)
//	tap       What, Unit, Tensor, Micro: an activation or its gradient (where the run records them)
//	message   Op "send" or "recv", What, Micro: what crossed a boundary between stages
//	live      Count: micro-batches whose activations a stage holds
//	memory    What: live (Count) and peak (Bytes) bytes of the step, by purpose
//	unmoved   once, after the last step, per parameter: Ranges of elements that still have their initial bits
//	end       once: the run ended regularly
//	drill     of a communicator drill: one collective and its result
//
// Where a rank holds part of a parameter (tensor-parallel slice, ZeRO shard) a
// digest covers that part, and Count says how many elements: digests add up.
package trace
