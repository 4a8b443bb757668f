//go:build cuda

package cuda

import "github.com/lockstep-ml/lockstep/kernels"

// Reduce implements kernels.Kernels.
func (b *Backend) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	kernels.CheckReduce(dst, src, op)
	if len(dst) == 0 || dst[0].Len() == 0 {
		return
	}
	kernel := "reduce_sum"
	if op == kernels.Max {
		kernel = "reduce_max"
	}
	b.enter()
	defer b.mu.Unlock()
	if !b.room(8*(len(dst)+len(src)), 2) {
		return
	}
	near, done := b.nearby(src)
	defer done()
	out, doneOut := b.nearby(dst)
	defer doneOut()
	to, from := b.list(addresses(out)), b.list(addresses(near))
	n := dst[0].Len()
	b.begin(kernel).words(to).ints(len(dst)).words(from).ints(len(src)).words(uint64(n)).elements(n)
	b.send(dst, out)
}

func addresses(ts []kernels.Tensor) []byte {
	list := make([]uint64, 0, len(ts))
	for _, t := range ts {
		list = append(list, address(t))
	}
	return uint64s(list)
}
