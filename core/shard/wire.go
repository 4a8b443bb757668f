package shard

import "fmt"

// Names of the collectives in Traffic.
const (
	AllReduce     = "all-reduce"
	ReduceScatter = "reduce-scatter"
	AllGather     = "all-gather"
	Broadcast     = "broadcast"
)

// WholeVector is Traffic.Unit where the collective is over all units at once.
const WholeVector = -1

// Traffic is one collective of a step, of the data-parallel group.
type Traffic struct {
	Op       string
	Unit     int // index in ZeRO.Units, or WholeVector
	Elements int // of the whole vector that is reduced or gathered
	Times    int // per step
}

// Traffic lists the collectives of one step that move weights and gradients, by
// unit. Small ones (norm, loss, token counts) are not among them.
//
//	stage 0: each unit's gradient is all-reduced once
//	stage 1: the gradient is reduce-scattered, the weights all-gathered, once;
//	         under a block map each unit's gradient is all-reduced and the
//	         owners broadcast their weights
//	stage 2: each unit's gradient is reduce-scattered D/dp times, once for every
//	         worker of a rank; its weights are all-gathered once
//	stage 3: gradients as in stage 2; each unit is all-gathered twice per
//	         micro-batch, before its forward and before its backward pass
//
// A tied head is reduced by itself. Only stage 3 gathers it, as a unit of its
// own: it reads the embedding's weights long after the embedding's release.
func (z ZeRO) Traffic() ([]Traffic, error) {
	if err := z.Validate(); err != nil {
		return nil, err
	}
	if z.Stage == 1 && !z.mapped() {
		return z.trafficOfVector(), nil
	}
	var out []Traffic
	rounds := z.Workers / z.DP
	for i, u := range z.Units {
		add := func(op string, times int) { out = append(out, Traffic{op, i, u.Elements, times}) }
		switch z.Stage {
		case 0:
			add(AllReduce, 1)
		case 1:
			add(AllReduce, 1)
			if !u.Tied {
				add(Broadcast, 1)
			}
		case 2:
			add(ReduceScatter, rounds)
			if !u.Tied {
				add(AllGather, 1)
			}
		case 3:
			if z.MicroBatches > maxTimes/rounds {
				return nil, fmt.Errorf("ZeRO: %d micro-batches per worker: %w", z.MicroBatches, ErrOverflow)
			}
			add(AllGather, 2*rounds*z.MicroBatches)
			add(ReduceScatter, rounds)
		}
	}
	return out, nil
}

// maxTimes keeps Traffic.Times far from overflow.
const maxTimes = 1 << 28

func (z ZeRO) trafficOfVector() []Traffic {
	_, _, weights := z.elements() // those that are updated here
	out := []Traffic{{ReduceScatter, WholeVector, weights, 1}}
	for i, u := range z.Units {
		if u.Tied {
			out = append(out, Traffic{ReduceScatter, i, u.Elements, 1})
		}
	}
	return append(out, Traffic{AllGather, WholeVector, weights, 1})
}

// WireBytes is what all ranks together send in a step: an all-reduce of n
// elements moves 2*4n(dp-1) bytes, a reduce-scatter or all-gather 4n(dp-1), as a
// ring and as the canonical tree do. With P parameters and no tied head, per
// step: stages 0 and 1 8P(dp-1), stage 2 4P(dp-1)(D/dp+1), stage 3
// 4P(dp-1)(D/dp)(2m+1) for m micro-batches per worker.
func (z ZeRO) WireBytes() (uint64, error) {
	traffic, err := z.Traffic()
	if err != nil {
		return 0, err
	}
	var c checked
	sum := uint64(0)
	for _, t := range traffic {
		sum = c.add(sum, c.mul(t.bytes(&c, z.DP), uint64(t.Times)))
	}
	return sum, c.err("ZeRO: bytes of a step")
}

// RankWireBytes is rank's share of WireBytes: each collective's bytes are spread
// evenly, the first ranks take the remainder. Shares add up to WireBytes.
func (z ZeRO) RankWireBytes(rank int) (uint64, error) {
	traffic, err := z.Traffic()
	if err != nil {
		return 0, err
	}
	if err := checkRank(rank, z.DP); err != nil {
		return 0, fmt.Errorf("ZeRO: %w", err)
	}
	var c checked
	sum := uint64(0)
	for _, t := range traffic {
		total, dp := t.bytes(&c, z.DP), uint64(z.DP)
		share := total / dp
		if uint64(rank) < total%dp {
			share++
		}
		sum = c.add(sum, c.mul(share, uint64(t.Times)))
	}
	return sum, c.err("ZeRO: bytes of a step")
}

// bytes is what all ranks together send in one of the collectives.
func (t Traffic) bytes(c *checked, dp int) uint64 {
	factor := uint64(1)
	if t.Op == AllReduce {
		factor = 2
	}
	return c.mul(factor, uint64(t.Elements), uint64(dp-1), float32Bytes)
}
