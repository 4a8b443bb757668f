package spec

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Fingerprint identifies the state after an optimizer step: one value for all
// plans, backends and hardware.
type Fingerprint struct {
	Weights, Moments kernels.Digest
	Loss             uint32 // bits of the float32 mean loss of the step
}

// String is "weights=<hex> moments=<hex> loss=<hex>".
func (f Fingerprint) String() string {
	return fmt.Sprintf("weights=%s moments=%s loss=%08x", f.Weights, f.Moments, f.Loss)
}

// FingerprintAt adds up the digests of a step that count. It refuses a history
// that has none of the weights, the moments or the loss.
func FingerprintAt(h *trace.History, step int) (Fingerprint, error) {
	var f Fingerprint
	var weights, moments, losses int
	for e := range h.All {
		if !e.Once || e.Step != step {
			continue
		}
		switch {
		case e.Kind == trace.KindScalar && e.What == trace.Loss:
			f.Loss = e.Bits
			losses++
		case e.Kind != trace.KindDigest || e.Digest == nil:
		case e.What == trace.Weight:
			f.Weights.Add(*e.Digest)
			weights++
		case e.What == trace.MomentM || e.What == trace.Momentum:
			f.Moments.Add(*e.Digest)
			moments++
		case e.What == trace.MomentV:
			f.Moments.Add(second(*e.Digest))
			moments++
		}
	}
	if weights == 0 || moments == 0 || losses != 1 {
		return f, fmt.Errorf("step %d: the history has digests of %d weights and %d moments and %d losses: want some, some and one", step, weights, moments, losses)
	}
	return f, nil
}

// second tells v's digest from m's, which has the same elements: without it
// swapped moments would add up to the same sum.
func second(d kernels.Digest) kernels.Digest {
	const odd = 0x9fb21c651e98df25
	return kernels.Digest{A: d.A * odd, B: d.B * odd, NonFinite: d.NonFinite}
}
