package trace

import (
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Kind says what an event is evidence of.
type Kind string

// The kinds; the package comment says when each is recorded.
const (
	KindSpan    Kind = "span"
	KindData    Kind = "data"
	KindTokens  Kind = "tokens"
	KindPhase   Kind = "phase"
	KindDigest  Kind = "digest"
	KindLeaf    Kind = "leaf"
	KindIssue   Kind = "issue"
	KindComm    Kind = "comm"
	KindScalar  Kind = "scalar"
	KindSkip    Kind = "skip"
	KindChanged Kind = "changed"
	KindDiff    Kind = "diff"
	KindUnmoved Kind = "unmoved"
	KindDrill   Kind = "drill"
	KindGather  Kind = "gather"
	KindMemory  Kind = "memory"
	KindTap     Kind = "tap"
	KindMessage Kind = "message"
	KindLive    Kind = "live"
	KindResume  Kind = "resume"
	KindRefusal Kind = "refusal"
	KindKernel  Kind = "kernel"
	KindRoutine Kind = "routine"
	KindDevice  Kind = "device"
	KindStored  Kind = "stored"
	KindFile    Kind = "file"
	KindTurns   Kind = "turns"
	KindHazard  Kind = "hazard"
	KindEnd     Kind = "end"
)

// Values of What.
const (
	Weight     = "weight"
	MomentM    = "m"
	MomentV    = "v"
	Momentum   = "momentum"
	Updated    = "updated"
	WorkerGrad = "grad.worker"
	Grad       = "grad"
	Forward    = "forward"
	Backward   = "backward"
	Loss       = "loss"
	Norm       = "norm"
	Coef       = "coef"
	LR         = "lr"
	Counter    = "counter"
	Unordered  = "unordered"
	Released   = "released"
	Deadlock   = "deadlock"
)

// Values of What of a drill of kernels: what a case found, and when routines were
// counted.
const (
	Same     = "same"
	Output   = "output"
	Input    = "input"
	Guard    = "guard"
	Returned = "returned"
	Failed   = "failed"
	Before   = "before"
	After    = "after"
	Idle     = "idle"
)

// Values of What of a drill of devices: what was tried.
const (
	Parts  = "parts"
	Each   = "each part"
	Kept   = "kept"
	Copied = "copied"
	Summed = "summed"
	All    = "all"
	// What its management library told of the device Unit while ranks computed.
	Watched   = "watched"
	Unwatched = "not watched"
	Fault     = "fault"
)

// The two tensors that the digest of a data event is about.
const (
	Tokens  = "tokens"
	Targets = "targets"
)

// Event is one piece of evidence. Which fields hold depends on Kind, as Forms
// says; the others are zero. Files leave out what is zero, but for Kind, Rank, Step
// and the Value of a scalar. Step counts optimizer steps from 0; what precedes the
// first step has Step -1.
type Event struct {
	Kind   Kind       `json:"kind"`
	Rank   int        `json:"rank"`
	Step   int        `json:"step"`
	What   string     `json:"what,omitempty"`
	Tensor string     `json:"tensor,omitempty"` // parameter name
	Unit   string     `json:"unit,omitempty"`   // sharding unit: "embed", "block.3", "final", "head"
	Worker int        `json:"worker,omitempty"` // logical worker
	Micro  int        `json:"micro,omitempty"`  // micro-batch within the rank's step
	Op     string     `json:"op,omitempty"`
	Group  names.Axis `json:"group,omitempty"`
	Ranks  []int      `json:"ranks,omitempty"` // world ranks of the group; of a diff: the two
	// Overlap marks an operation of the group's second communicator, which works
	// beside the computation and numbers its operations by itself.
	Overlap bool   `json:"overlap,omitempty"`
	Seq     uint64 `json:"seq,omitempty"`  // operation number within its communicator
	Peer    int    `json:"peer,omitempty"` // of a comm the root, receiver or sender, in the world; of a message the other stage
	Lo      int64  `json:"lo,omitempty"`   // element range [Lo, Hi) of the rank's flat buffer
	Hi      int64  `json:"hi,omitempty"`
	Count   int64  `json:"count,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"` // sent by this rank
	Moved   int64  `json:"moved,omitempty"` // of a comm: bytes of peers that this rank touched, counted as they moved; -1 where nobody counted

	// Once marks the copy that counts where several ranks hold the same elements:
	// the digests marked so cover every logical element exactly once.
	Once   bool            `json:"once,omitempty"`
	Digest *kernels.Digest `json:"digest,omitempty"`
	// Squares is the sum of the squares of the elements that a digest covers: exact,
	// rounded once.
	Squares Float         `json:"squares,omitempty"`
	Span    *kernels.Span `json:"span,omitempty"`
	IDs     []int64       `json:"ids,omitempty"`
	Ranges  [][2]int64    `json:"ranges,omitempty"`
	// Value is a scalar; Bits its float32 bits where the value is one.
	Value Float  `json:"value,omitempty"`
	Bits  uint32 `json:"bits,omitempty"`
	// Index, Got and Want of a diff: the first differing element of Tensor and
	// its bits on the two Ranks.
	Index int64  `json:"index,omitempty"`
	Got   uint32 `json:"got,omitempty"`
	Want  uint32 `json:"want,omitempty"`
	Text  string `json:"text,omitempty"`
	// Data holds the elements that a digest covers, where the run captured them; of
	// a tap row by row, Hi-Lo columns each.
	Data Floats `json:"data,omitempty"`
}

// Recorder takes events; it is safe for concurrent use.
type Recorder interface{ Record(Event) }

// Holder is a Recorder that can hold events back until all that they say is known.
type Holder interface {
	Recorder
	// Hold takes an event that fill completes. It is recorded by Release, and with it all
	// that comes after it, in order.
	Hold(e Event, fill func(*Event))
	// Release records what is held.
	Release()
}

// Record hands e to r unless r is nil.
func Record(r Recorder, e Event) {
	if r != nil {
		r.Record(e)
	}
}
