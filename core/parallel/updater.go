// Package parallel spreads training over ranks: which micro-batches a rank
// runs, how its workers' gradients are summed, where gradients, optimizer state
// and weights live (plain data parallelism and the ZeRO stages), and how the
// ranks' parts meet. It never looks at the model's arithmetic.
package parallel

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Updater owns the weights, gradients and moments of one model part over the
// data-parallel ranks. The order of calls in a step is Begin; per worker
// BeginWorker before its first backward pass and EndWorker after its last, and
// Enter before every pass; then Finish, the optimizer on Pieces, Publish.
type Updater interface {
	model.Hooks
	// Init makes the initial weights: each rank builds what it holds by fill;
	// where weights are replicated rank 0 of the group broadcasts its own.
	Init(ctx context.Context, fill func(p *model.Param, local shard.Range, dst kernels.Tensor)) error
	Begin(step int)
	BeginWorker(it *Item)
	Enter(it *Item)
	EndWorker(ctx context.Context, it *Item) error
	// Finish completes the reductions over data-parallel ranks.
	Finish(ctx context.Context) error
	// Loss is the summed loss of the global batch after Finish (last stage).
	Loss() kernels.Tensor
	// Pieces are what this rank updates. The list is valid until the next call.
	Pieces() []Piece
	// Squares are the pieces whose squares this rank adds to the global norm; they
	// may share the list of Pieces.
	Squares() []Piece
	// Tied gives the pieces of the embedding's (head false) or the tied head's
	// gradient and, after Publish, weights that this rank holds; the two lists
	// have equal lengths, on whichever ranks they are.
	Tied(head bool) (grads, weights []kernels.Tensor)
	// Publish brings the updated weights to every rank that holds them.
	Publish(ctx context.Context) error
	// State lists the weights at rest.
	State() []Piece
	// Replicated says whether data-parallel ranks hold equal State, and equal
	// moments.
	Replicated() (weights, moments bool)
	// Spans names the buffers that no other rank may share.
	Spans() map[string]kernels.Tensor
}

// Piece is a range of the rank's flat layout with the tensors that hold it.
type Piece struct {
	shard.Range
	W, G kernels.Tensor
	M    []kernels.Tensor
}

// Setup is what updaters are made from.
type Setup struct {
	Model    *model.Model
	Plan     plan.Plan
	DP       comm.Communicator // collectives between passes, and within them where they do not overlap
	Overlap  comm.Communicator // the same ranks, for operations beside the computation
	Meter    *Meter
	Evidence *Evidence
	Moments  int  // buffers per element
	Workers  bool // record the digest of each worker's gradient
	// Poison fills released weights with NaN.
	Poison bool
	Queue  *comm.Queue // runs Overlap's operations
	// Cut changes how the layout is cut; nil leaves it as Segments has it.
	Cut func([]Segment) []Segment
}

// New makes the updater of the plan's ZeRO stage.
func New(s Setup) (Updater, error) {
	n := len(s.Plan.RankWorkers(s.Model.Config(), 0))
	b := &base{Setup: s, be: s.Meter.For(names.MemOther), layout: &s.Model.Layout, workers: n}
	var err error
	if b.loss, err = NewCounter(s.Meter, names.MemOther, 1, n); err != nil {
		return nil, err
	}
	if b.segs, err = Segments(s.Plan, s.Model.Config(), b.layout); err != nil {
		return nil, err
	}
	if s.Cut != nil {
		b.segs = s.Cut(b.segs)
	}
	if s.Plan.Zero >= 2 {
		return newSharded(b)
	}
	return newReplicated(b)
}

// base is what all updaters share.
type base struct {
	Setup
	be      kernels.Backend
	layout  *model.Layout
	workers int
	segs    []Segment // of the owned range, then of the head source
	loss    *Counter
	step    int
	item    *Item
	labels  comm.Labels // of operations on DP
	pieces  pieceList
}

// pieceList is a list of pieces that is made again and again in place: where a
// piece's gradient lies may change from step to step.
type pieceList []Piece

// add appends a piece whose moments lie at at in each of moments.
func (l *pieceList) add(own shard.Range, w, g kernels.Tensor, moments []kernels.Tensor, at shard.Range) {
	n := len(*l)
	if n == cap(*l) {
		*l = append(*l, Piece{})
	}
	*l = (*l)[:n+1]
	p := &(*l)[n]
	*p = Piece{Range: own, W: w, G: g, M: p.M[:0]}
	for _, m := range moments {
		p.M = append(p.M, m.Range(at.Lo, at.Hi))
	}
}

func (b *base) Begin(step int)       { b.step = step }
func (b *base) Enter(it *Item)       { b.item = it }
func (b *base) Loss() kernels.Tensor { return b.loss.Acc() }

// leaf records that the current worker's gradient of unit u is complete and
// enters the sum over workers.
func (b *base) leaf(u int, grad kernels.Tensor) error {
	if !b.item.Present {
		return nil
	}
	b.Evidence.Record(trace.Event{Kind: trace.KindLeaf, Step: b.step, Unit: b.layout.Units[u].Name, Worker: b.item.Worker})
	if !b.Workers {
		return nil
	}
	// A worker's gradient exists on one data-parallel rank only: it counts there.
	ev := *b.Evidence
	ev.Once, ev.Capture = true, false
	return ev.Digests(trace.Event{Step: b.step, What: trace.WorkerGrad, Worker: b.item.Worker}, grad, b.layout.Units[u].Range)
}

// on labels an operation on DP that moves elements r.
func (b *base) on(ctx context.Context, name string, r shard.Range) context.Context {
	return b.labels.On(ctx, b.label(name, r))
}

// label describes an operation on elements r for its record.
func (b *base) label(name string, r shard.Range) comm.Label {
	return comm.Label{Group: names.DP, Tensor: name, Lo: int64(r.Lo), Hi: int64(r.Hi), Step: b.step}
}

// beside is label for an operation on Overlap.
func (b *base) beside(name string, r shard.Range) comm.Label {
	l := b.label(name, r)
	l.Overlap = true
	return l
}

// held lists the units that have weights in the rank's parameter buffer.
func (b *base) held() []int {
	var out []int
	for u := range b.layout.Units {
		if b.layout.Units[u].Hi <= b.layout.Weights {
			out = append(out, u)
		}
	}
	return out
}

// Segment is a range of the flat layout that is sharded as a whole: rank i of
// the data-parallel group owns elements [Bounds[i], Bounds[i+1]) of it.
type Segment struct {
	Name string
	shard.Range
	Bounds []int
	Unit   int // the unit that it lies in; -1 for all of them
	// Source marks the gradient source of a tied head: cut like the embedding.
	Source bool
}

// Own is the part of the flat layout that rank i owns.
func (s *Segment) Own(i int) shard.Range {
	return shard.Range{Lo: s.Lo + s.Bounds[i], Hi: s.Lo + s.Bounds[i+1]}
}

// whole gives all of n elements to one owner.
func whole(n, owner, size int) []int {
	b := make([]int, size+1)
	for i := owner + 1; i <= size; i++ {
		b[i] = n
	}
	return b
}

// Segments cuts a layout for a plan: stage 0 has one segment that every rank
// owns in full (Bounds nil); stage 1 one segment, the whole vector, or one per
// block with an owner; stages 2 and 3 one per unit, or one per tensor.
func Segments(p plan.Plan, c model.Config, l *model.Layout) ([]Segment, error) {
	dp := p.Dims().DP
	var out []Segment
	switch {
	case p.Zero == 0:
		return []Segment{{Name: names.WholeVector, Range: shard.Range{Hi: l.Owned}, Unit: -1}}, nil
	case p.Zero == 1 && (p.Shard == plan.ShardFlat || p.Shard == ""):
		out = append(out, Segment{Name: names.WholeVector, Range: shard.Range{Hi: l.Owned}, Unit: -1, Bounds: shard.Bounds(l.Owned, dp)})
	case p.Zero == 1:
		segs, err := blockSegments(p.Shard, l, dp)
		if err != nil {
			return nil, err
		}
		out = segs
	case p.Shard == plan.ShardTensors:
		out = tensorSegments(l, dp)
	default:
		for u := range l.Units {
			if r := l.Units[u].Range; r.Hi <= l.Owned {
				out = append(out, Segment{Name: l.Units[u].Name, Range: r, Unit: u, Bounds: shard.Bounds(r.Len(), dp)})
			}
		}
	}
	if l.Grads > l.Owned {
		head := l.Units[len(l.Units)-1]
		bounds, err := headBounds(p, c, l, head.Len())
		if err != nil {
			return nil, err
		}
		out = append(out, Segment{Name: head.Name, Range: head.Range, Unit: len(l.Units) - 1, Bounds: bounds, Source: true})
	}
	return out, nil
}

// headBounds cuts the head source as the embedding is cut, on the stage that
// has it.
func headBounds(p plan.Plan, c model.Config, l *model.Layout, n int) ([]int, error) {
	segs, first := []Segment(nil), l
	if l.Units[0].Name != model.EmbedUnit {
		part := p.Parts(c, p.Dims().Coord(0))[0]
		part.Tensor = l.Part.Tensor
		whole := model.NewLayout(c, part)
		whole.Grads = whole.Owned // only the owned range is of interest
		first = &whole
	} else {
		owned := *l
		owned.Grads = owned.Owned
		first = &owned
	}
	segs, err := Segments(p, c, first)
	if err != nil {
		return nil, err
	}
	if segs[0].Lo != 0 || segs[0].Hi < n {
		return nil, fmt.Errorf("embedding of %d elements is cut into several segments", n)
	}
	bounds := make([]int, len(segs[0].Bounds))
	for i, b := range segs[0].Bounds {
		bounds[i] = min(b, n)
	}
	return bounds, nil
}
