package sharding

import (
	"math/bits"
	"slices"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// elementBytes is the size of an element.
const elementBytes = 4

// Unit is what is gathered, reduced and released together: the embedding, one
// block, final norm with head.
type Unit struct {
	Name     string
	Elements int
	// Tied marks a head that reads the embedding's weights: it has a gradient of
	// its own, and is gathered for its own passes, but no weights or moments.
	Tied bool
	// Copied marks a tied head on another pipeline stage than its embedding: it
	// has a copy of the weights there, but no moments.
	Copied bool
	// Held is how many of the elements each rank owns, where whole blocks or
	// tensors are given to ranks; nil is the shard rule.
	Held []int
	// Tensors move one by one where whole tensors are given to ranks; nil is the
	// unit at once.
	Tensors []Tensor
}

// Tensor is one parameter of a unit.
type Tensor struct {
	Name     string
	Elements int
}

// tensors is what moves at once.
func (u *Unit) tensors() []Tensor {
	if u.Tensors == nil {
		return []Tensor{{u.Name, u.Elements}}
	}
	return u.Tensors
}

// ZeRO is the arithmetic of one data-parallel step of a model part: what a rank
// holds, and what moves (Rajbhandari et al., arXiv 1910.02054). Elements have 4
// bytes.
type ZeRO struct {
	Stage int // 0 is plain data parallelism
	DP    int // data-parallel ranks
	// Workers is D, the logical workers of a step: DP times a power of two.
	Workers int
	// MicroBatches counts per worker.
	MicroBatches int
	Moments      int // optimizer state per element: AdamW 2, SGD with momentum 1
	Units        []Unit
}

// Of is the arithmetic of a layout under a valid plan for the model c, with a
// number of moments.
func Of(p plan.Plan, c model.Config, l *model.Layout, moments int) ZeRO {
	workers, dp := p.Workers(c), p.Dims().DP
	z := ZeRO{Stage: p.Zero, DP: dp, Workers: workers, MicroBatches: p.MicroBatches * dp / workers, Moments: moments}
	cuts := Cuts(p, l)
	for u := range l.Units {
		unit := Unit{Name: l.Units[u].Name, Elements: l.Units[u].Len(), Tied: l.Units[u].Name == model.HeadUnit}
		unit.Copied = unit.Tied && !l.Part.First
		switch {
		case ByElements(p):
		case unit.Tied:
			unit.Held = heldOfHead(p, c, l, unit.Elements)
		default:
			unit.Held = make([]int, dp)
			for i := range cuts {
				if cuts[i].Unit == u {
					unit.give(&cuts[i], p.Shard == plan.ShardTensors)
				}
			}
		}
		z.Units = append(z.Units, unit)
	}
	return z
}

// give adds what each rank owns of a cut in the unit.
func (u *Unit) give(c *Cut, alone bool) {
	for place := range u.Held {
		u.Held[place] += c.Own(place).Len()
	}
	if alone {
		u.Tensors = append(u.Tensors, Tensor{c.Name, c.Len()})
	}
}

// heldOfHead gives a tied head's gradient under a map to the embedding's owner,
// who may be on another stage.
func heldOfHead(p plan.Plan, c model.Config, l *model.Layout, elements int) []int {
	first := *l
	if !l.Part.First {
		part := p.Parts(c, p.Dims().Coord(0))[0]
		part.Tensor = l.Part.Tensor
		first = model.NewLayout(c, part)
	}
	out := make([]int, p.Dims().DP)
	out[owners(p.Shard, &first, len(out))[model.EmbedName]] = elements
	return out
}

// elements counts the elements that have a gradient, that have weights, and
// that have moments.
func (z *ZeRO) elements() (gradients, weights, moments int) {
	for i := range z.Units {
		u := &z.Units[i]
		gradients += u.Elements
		if !u.Tied || u.Copied {
			weights += u.Elements
		}
		if !u.Tied {
			moments += u.Elements
		}
	}
	return gradients, weights, moments
}

// held counts the elements of a rank's shards, unit by unit.
func (z *ZeRO) held(rank int) (gradients, weights, moments int) {
	shards := ZeRO{Units: slices.Clone(z.Units)}
	for i := range shards.Units {
		u := &shards.Units[i]
		if u.Held != nil {
			u.Elements = u.Held[rank]
		} else {
			u.Elements = shard.Part{Index: rank, Size: z.DP}.Of(u.Elements).Len()
		}
	}
	return shards.elements()
}

// mapped reports whether whole blocks or tensors are given to ranks.
func (z *ZeRO) mapped() bool {
	return slices.ContainsFunc(z.Units, func(u Unit) bool { return u.Held != nil })
}

// levels is the number of gradient buffers of the binary counter over a rank's
// D/dp workers: log2(D/dp)+1, the accumulator among them.
func (z *ZeRO) levels() int { return bits.Len(uint(z.Workers / z.DP)) }

// Memory is what one rank holds, in bytes.
type Memory struct {
	Weights uint64 // at rest
	// Gathered is the most weights that are gathered at one time: stage 3.
	Gathered uint64
	// Gradients is the buffers of the binary counter.
	Gradients uint64
	// FullGradient is where backward passes write before the reduce-scatter, in
	// stages 2 and 3; with one micro-batch per worker it lives unit by unit, and
	// this is the most at one time.
	FullGradient uint64
	Moments      uint64
	// Passing is the most of Gathered and FullGradient together at one time: a
	// pass reaches the two at different units.
	Passing uint64
}

// Memory is what the rank at a place of its group holds during a step, exact to
// the byte. With n elements (tied heads, which have gradients only, written n'),
// s(r) of them in r's shards of all units, S(r) in its shard of the whole
// vector, k moments, L levels, u in the largest unit, g in the units that are
// gathered at one time (the one in use and the next, with a tied head its
// embedding):
//
//	stage  weights  gathered  gradients     full gradient          moments
//	0      4n                 4(n+n')L                             4kn
//	1      4n                 4(n+n')L                             4kS(r)
//	2      4n                 4(s+s')(r)L   4u, or 4(n+n') if a    4ks(r)
//	3      4s(r)    4g        4(s+s')(r)L   worker has more than   4ks(r)
//	                                        one micro-batch
//
// A block map in stage 1 replaces S(r) by what it gives r. A copied head adds
// its elements to the weights. Where a tied head with the final norm is larger
// than every unit, it is u: the two are in their backward pass together. One
// rank (dp=1) is no special case.
func (z *ZeRO) Memory(place int) Memory {
	bytes := func(elements, times int) uint64 { return uint64(elements) * uint64(times) * elementBytes }
	gradients, weights, moments := z.elements()
	heldGradients, heldWeights, heldMoments := z.held(place)
	m := Memory{
		Weights:   bytes(weights, 1),
		Gradients: bytes(gradients, z.levels()),
		Moments:   bytes(moments, z.Moments),
	}
	switch {
	case z.Stage == 1 && z.mapped():
		m.Moments = bytes(heldMoments, z.Moments)
	case z.Stage == 1:
		m.Moments = bytes(shard.Part{Index: place, Size: z.DP}.Of(moments).Len(), z.Moments)
	case z.Stage >= 2:
		m.Gradients = bytes(heldGradients, z.levels())
		m.Moments = bytes(heldMoments, z.Moments)
		peak := z.peak()
		m.Gathered, m.FullGradient, m.Passing = bytes(peak.gathered, 1), bytes(peak.gradients, 1), bytes(peak.both, 1)
	}
	if z.Stage == 3 {
		m.Weights = bytes(heldWeights, 1)
	}
	return m
}
