// Package turns measures several things in turn, some of which other programs do: on a
// machine that is not alone, only neighbours in time can be compared.
package turns

import (
	"slices"
	"time"
)

// pause lets idle threads of the side that ran go to sleep.
const pause = 3 * time.Millisecond

// Alternate measures two things in turn, which of them first changing every
// round, and returns the measurements of both, neighbours at equal indices.
func Alternate(rounds int, a, b func() float64) (x, y []float64) {
	x, y = make([]float64, rounds), make([]float64, rounds)
	for i := range rounds {
		r := Round(i, a, b)
		x[i], y[i] = r[0], r[1]
	}
	return x, y
}

// Round is round i of an alternation of any number of sides: it measures each of them
// once, and begins with another one than the round before.
func Round(i int, sides ...func() float64) []float64 {
	out := make([]float64, len(sides))
	for k := range sides {
		time.Sleep(pause)
		s := (k + i) % len(sides)
		out[s] = sides[s]()
	}
	return out
}

// Ratios divides neighbours.
func Ratios(x, y []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i] / y[i]
	}
	return out
}

// Quartiles of some values: a quarter lies below the first, half below the
// second, a quarter above the third. Of none they are 0.
func Quartiles(x []float64) (q1, q2, q3 float64) {
	if len(x) == 0 {
		return 0, 0, 0
	}
	s := slices.Sorted(slices.Values(x))
	at := func(quarters int) float64 { return s[(len(s)-1)*quarters/4] }
	return at(1), at(2), at(3)
}
