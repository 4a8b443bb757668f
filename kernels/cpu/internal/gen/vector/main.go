// Command vector generates the kernels over vectors and rows, in one form for
// AVX-512 and one for AVX2, from one description each. Every operation below is
// one rounding of the canonical arithmetic.
package main

import (
	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
)

func main() {
	for _, s := range []emit.ISA{emit.AVX512(), emit.AVX2()} {
		c := emit.NewConstants(s)
		elementwise(s, c)
		norms(s, c)
		rotation(s, c)
		probabilities(s, c)
		gates(s, c)
		updates(s, c)
		squares(s)
		largestBits(s, c)
		hash(s, c)
		hashChanged(s, c)
	}
	control()
	build.Generate()
}
