package drill

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Sums that threads share are added to one number by each of them. An addition that
// two make at a time, without a lock, is lost only where both come to it within some
// nanoseconds, microseconds after they began: in one call of hundreds. So these cases
// take a sum many times into one number, in which whatever was lost is missing in the
// end, and over lengths whose second part is shorter by what its thread begins later.

// squaresAgain and hashedAgain are how often a contended case takes its sum.
const squaresAgain, hashedAgain = 400, 100

// contended calls f for every length: two parts of up to 17024 elements.
func contended(f func(n int)) {
	for i := range 4 {
		f(2*17024 - 384*i)
	}
}

func contendedSquares(tb *table) {
	contended(func(n int) {
		tc := tb.add(fmt.Sprintf("n%d_again", n), n, nil, in("x", 1, n, plain))
		tc.call = func(k kernels.Kernels, t []kernels.Tensor) any {
			var acc kernels.SquareSum
			for range squaresAgain {
				k.SumSquares(&acc, t[0])
			}
			return acc
		}
		tc.definition = func(x [][]float32) any {
			var one, acc kernels.SquareSum
			for _, v := range x[0] {
				addSquare(&one, v)
			}
			for i, digit := range one[:kernels.SquareInf] {
				acc.AddScaled(0, squaresAgain*digit, 32*i)
			}
			return acc
		}
	})
}

func contendedHash(tb *table) {
	contended(func(n int) {
		at := hashPlaces(n)[1]
		tc := tb.add(fmt.Sprintf("n%d_again", n), n, nil, in("x", 1, n, nonfinite))
		tc.call = func(k kernels.Kernels, t []kernels.Tensor) any {
			var d kernels.Digest
			for range hashedAgain {
				k.Hash(&d, t[0], at)
			}
			return d
		}
		tc.definition = func(x [][]float32) any {
			var d kernels.Digest
			for j, v := range x[0] {
				mixElement(&d, at.ID, at.First+uint64(j), v)
			}
			return times(d, hashedAgain)
		}
	})
}

// times is the digest of n tensors of the digest d.
func times(d kernels.Digest, n uint64) kernels.Digest {
	return kernels.Digest{A: n * d.A, B: n * d.B, NonFinite: n * d.NonFinite}
}

func contendedChanges(tb *table) {
	contended(func(n int) {
		at := hashPlaces(n)[1]
		tc := tb.add(fmt.Sprintf("n%d_again", n), n, nil, in("x", 1, n, fewValues), in("old", 1, n, fewValues))
		tc.call = func(k kernels.Kernels, t []kernels.Tensor) any {
			var h hashChange
			for range hashedAgain {
				h.Changed += k.HashChanged(&h.Digest, t[0], t[1], at)
			}
			return h
		}
		tc.definition = func(x [][]float32) any {
			var h hashChange
			for j, v := range x[0] {
				if kernels.Bits(v) != kernels.Bits(x[1][j]) {
					h.Changed += hashedAgain
					mixElement(&h.Digest, at.ID, at.First+uint64(j), math.Float32frombits(1))
				}
			}
			h.Digest = times(h.Digest, hashedAgain)
			return h
		}
	})
}
