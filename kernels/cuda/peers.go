//go:build cuda

package cuda

import (
	"slices"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Ranks of a process reduce each other's tensors in place. What is on another device is
// used there by this one's kernels if they can be let, else by a copy.

// reachable reports whether kernels of this device can use memory of another.
func (b *Backend) reachable(d *gpu.Device) bool {
	if d == b.dev {
		return true
	}
	if can, known := b.peers[d]; known {
		return can
	}
	can, err := b.dev.CanAccess(d)
	if err == nil && can {
		err = b.dev.EnablePeer(d)
	}
	b.note(err)
	b.peers[d] = can && err == nil
	return b.peers[d]
}

// nearby gives tensors that this device's kernels can use in place of ts: ts themselves,
// or copies of those that it cannot reach. done frees the copies.
func (b *Backend) nearby(ts []kernels.Tensor) (near []kernels.Tensor, done func()) {
	near = ts
	var copies []*gpu.Buffer
	for i, t := range ts {
		if t.Absent() || t.Len() == 0 || b.reachable(own(t).mem.Device()) {
			continue
		}
		mem, err := b.take(elementBytes * t.Len())
		if err == nil {
			err = b.stream.Copy(mem, 0, own(t).mem, elementBytes*t.Off, elementBytes*t.Len())
		}
		if err != nil {
			b.note(err)
			continue
		}
		if len(copies) == 0 {
			near = slices.Clone(ts)
		}
		copies = append(copies, mem)
		near[i] = kernels.Tensor{Buf: &buffer{mem: mem, n: t.Len()}, Rows: 1, Cols: t.Len(), Stride: t.Len()}
	}
	return near, func() {
		for _, mem := range copies {
			b.note(mem.Free())
		}
	}
}

// send copies what kernels set in copies to where it belongs.
func (b *Backend) send(ts, near []kernels.Tensor) {
	for i, t := range ts {
		if !t.Absent() && own(t) != own(near[i]) {
			b.note(b.stream.Copy(own(t).mem, elementBytes*t.Off, own(near[i]).mem, 0, elementBytes*t.Len()))
		}
	}
}
