package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// agree proves that the data-parallel replicas of weights and moments are
// equal: all exchange one digest, and where it differs they descend together to
// the first differing element, record it, and, unless the run keeps going, all
// fail.
func (r *rank) agree(ctx context.Context, step int) error {
	if !r.cfg.Recording.Digests || r.dp.Size() == 1 {
		return nil
	}
	ctx = r.labels.On(ctx, comm.Label{Group: names.DP, Tensor: names.Agree, Step: step})
	var states []held
	for h := range r.held {
		if h.replicated {
			states = append(states, h)
		}
	}
	digests := make([]kernels.Digest, len(states))
	for i, s := range states {
		s.digest(&digests[i], r.seen.Sums, s.Range, false)
	}
	r.seen.Sums.Wait()
	var mine []byte
	for _, d := range digests {
		mine = appendDigest(mine, d)
	}
	all, err := r.dp.AllGatherBytes(ctx, mine)
	if err != nil {
		return err
	}
	for i, s := range states {
		lo, hi := i*digestBytes, (i+1)*digestBytes
		for peer := range all {
			if len(all[peer]) != len(mine) {
				return fmt.Errorf("rank %d sent %d bytes of digests: want %d", peer, len(all[peer]), len(mine))
			}
			if bytes.Equal(all[0][lo:hi], all[peer][lo:hi]) {
				continue
			}
			if err := r.descend(ctx, step, s, peer); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

const digestBytes = 16

func appendDigest(b []byte, d kernels.Digest) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, d.A), d.B)
}

// descend halves the range in which ranks 0 and peer of the data-parallel group
// differ until one element is left. Every rank takes part, so all know it.
func (r *rank) descend(ctx context.Context, step int, s held, peer int) error {
	x := s.Range
	for x.Len() > 1 {
		mid := x.Lo + x.Len()/2
		low := shard.Range{Lo: x.Lo, Hi: mid}
		var d kernels.Digest
		s.digest(&d, r.be, low, false)
		all, err := r.dp.AllGatherBytes(ctx, appendDigest(nil, d))
		if err != nil {
			return err
		}
		if bytes.Equal(all[0], all[peer]) {
			x.Lo = mid
		} else {
			x = low
		}
	}
	var v [1]float32
	if err := r.be.Read(v[:], s.at.Range(x.Lo-s.Lo, x.Hi-s.Lo)); err != nil {
		return err
	}
	all, err := r.dp.AllGatherBytes(ctx, binary.LittleEndian.AppendUint32(nil, kernels.Bits(v[0])))
	if err != nil {
		return err
	}
	ranks := r.dp.Ranks()
	ev := trace.Event{Kind: trace.KindDiff, Step: step, What: s.what, Ranks: []int{ranks[0], ranks[peer]},
		Want: binary.LittleEndian.Uint32(all[0]), Got: binary.LittleEndian.Uint32(all[peer])}
	s.chunk.model.Layout.Pieces(x, func(p *model.Param, local shard.Range) {
		p.Places(local, func(_ shard.Range, _, _ int, at kernels.Place) { ev.Tensor, ev.Index = p.Name, int64(at.First) })
	})
	r.log.Record(ev)
	if r.cfg.Recording.KeepGoing {
		return nil
	}
	return fmt.Errorf("replicas differ after step %d: %s of %s, element %d: rank %d has bits %08x, rank %d has %08x",
		step, ev.What, ev.Tensor, ev.Index, ev.Ranks[0], ev.Want, ev.Ranks[1], ev.Got)
}
