package cpu

import (
	"fmt"
	"math"
)

// canary computes with subnormals and halfway cases on the caller's thread, in
// assembly: the smallest subnormal must survive a product, and a tie must round
// to even.
func (b *Backend) canary() error {
	b.checkControl()
	if err := b.Sync(); err != nil {
		return err
	}
	ws := &workspace{}
	x := ws.a.take(32)
	const tiny = math.SmallestNonzeroFloat32
	cases := []struct{ x, s, want float32 }{
		{tiny, 1, tiny}, {0x1p-126, 0.5, 0x1p-127}, {3 * tiny, 0.5, 2 * tiny}, {0x1p-140, 0x1p-9, tiny}, {1 + 0x1p-23, 1 + 0x1p-23, 1 + 0x1p-22},
	}
	for _, c := range cases {
		for i := range x {
			x[i] = c.x
		}
		ws.vec.p[0], ws.vec.p[1], ws.vec.s[0] = &x[0], &x[0], c.s
		ws.do(b.isa.scale, len(x))
		for i, got := range x {
			if math.Float32bits(got) != math.Float32bits(c.want) {
				return fmt.Errorf("%s: lane %d gives %g * %g = %g, want %g: the processor flushes subnormals or does not round to nearest",
					b.Name(), i, c.x, c.s, got, c.want)
			}
		}
	}
	return nil
}
