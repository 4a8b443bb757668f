package turns_test

import (
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/benchmarks/turns"
)

func TestAlternate(t *testing.T) {
	var order []byte
	n := 0.0
	count := func(name byte) func() float64 {
		return func() float64 {
			order = append(order, name)
			n++
			return n
		}
	}
	x, y := turns.Alternate(3, count('a'), count('b'))
	if string(order) != "abbaab" || !slices.Equal(x, []float64{1, 4, 5}) || !slices.Equal(y, []float64{2, 3, 6}) {
		t.Errorf("order %s, a %v, b %v", order, x, y)
	}
	if r := turns.Ratios(y, x); !slices.Equal(r, []float64{2, 0.75, 1.2}) {
		t.Errorf("ratios %v", r)
	}
}

func TestQuartiles(t *testing.T) {
	for _, c := range []struct{ x, want []float64 }{
		{nil, []float64{0, 0, 0}},
		{[]float64{7}, []float64{7, 7, 7}},
		{[]float64{5, 1, 4, 2, 3}, []float64{2, 3, 4}},
	} {
		a, b, d := turns.Quartiles(c.x)
		if got := []float64{a, b, d}; !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.x, got, c.want)
		}
	}
}
