package sharding

import "github.com/lockstep-ml/lockstep/core/names"

// Collective is one operation of a step over the data-parallel group.
type Collective struct {
	Op string
	// Label is what the operation's record is labelled with: a unit, a tensor
	// where tensors are dealt out whole, or names.WholeVector.
	Label    string
	Gradient bool // it reduces gradients; else it brings weights
	Elements int  // of the whole vector that is reduced or gathered
	Times    int  // per step
}

// Traffic lists the collectives of one step that move weights and gradients.
// Small ones (norm, loss, token counts) are not among them.
//
//	stage 0: each unit's gradient is all-reduced once
//	stage 1: the gradient is reduce-scattered, the weights all-gathered, once;
//	         under a block map each unit's gradient is all-reduced and the
//	         owners broadcast their weights
//	stage 2: each unit's gradient is reduce-scattered D/dp times, once for every
//	         worker of a rank; its weights are all-gathered once
//	stage 3: gradients as in stage 2; each unit is all-gathered twice per
//	         micro-batch, before its forward and before its backward pass; where
//	         whole tensors are dealt out, tensor by tensor
//
// A tied head is reduced by itself. Only stage 3 gathers it, as a unit of its
// own: it reads the embedding's weights long after the embedding's release.
func (z *ZeRO) Traffic() []Collective {
	if z.Stage == 1 && !z.mapped() {
		return z.trafficOfVector()
	}
	var out []Collective
	rounds := z.Workers / z.DP
	for i := range z.Units {
		u := &z.Units[i]
		reduce, gather := Collective{Op: names.OpAllReduce, Times: 1}, Collective{}
		switch z.Stage {
		case 1:
			gather = Collective{Op: names.OpBroadcast, Times: 1}
		case 2:
			reduce = Collective{Op: names.OpReduceScatter, Times: rounds}
			gather = Collective{Op: names.OpAllGather, Times: 1}
		case 3:
			reduce = Collective{Op: names.OpReduceScatter, Times: rounds}
			gather = Collective{Op: names.OpAllGather, Times: 2 * rounds * z.MicroBatches}
		}
		if u.Tied && z.Stage < 3 {
			gather.Times = 0
		}
		reduce.Gradient = true
		for _, t := range u.tensors() {
			for _, c := range []Collective{reduce, gather} {
				if c.Label, c.Elements = t.Name, t.Elements; c.Times > 0 {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// trafficOfVector is stage 1 by elements.
func (z *ZeRO) trafficOfVector() []Collective {
	_, _, updated := z.elements()
	out := []Collective{{names.OpReduceScatter, names.WholeVector, true, updated, 1}}
	for i := range z.Units {
		if u := &z.Units[i]; u.Tied {
			out = append(out, Collective{names.OpReduceScatter, u.Name, true, u.Elements, 1})
		}
	}
	return append(out, Collective{names.OpAllGather, names.WholeVector, false, updated, 1})
}

// WireBytes is what all ranks together send in a step: an all-reduce of n
// elements moves 2*4n(dp-1) bytes, a reduce-scatter, all-gather or broadcast
// 4n(dp-1), as a ring and as the canonical tree do. With P parameters and no
// tied head, per step: stages 0 and 1 8P(dp-1), stage 2 4P(dp-1)(D/dp+1), stage
// 3 4P(dp-1)(D/dp)(2m+1) for m micro-batches per worker.
func (z *ZeRO) WireBytes() int64 {
	sum := int64(0)
	for _, c := range z.Traffic() {
		bytes := int64(c.Times) * elementBytes * int64(c.Elements) * int64(z.DP-1)
		if c.Op == names.OpAllReduce {
			bytes *= 2
		}
		sum += bytes
	}
	return sum
}
