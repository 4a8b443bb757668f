package drill

import (
	"math"
	"math/big"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Integer inputs are what they are said to be: their sums are exact in either
// order, and every class of planted values occurs.
func TestIntegerInputsAddExactly(t *testing.T) {
	s := source{kind: Integer, base: hash(11)}
	group := []int{4, 0, 2, 7, 1}
	var negativeZero, nan, infinite, subnormals, opposite int
	for i := range 4000 {
		up, down, exactSum := float32(math.Copysign(0, -1)), float32(math.Copysign(0, -1)), new(big.Float).SetPrec(300)
		finite := true
		for j := range group {
			up += s.value(group[j], i)
			down += s.value(group[len(group)-1-j], i)
			v := s.value(group[j], i)
			finite = finite && v-v == 0
			if finite {
				exactSum.Add(exactSum, big.NewFloat(float64(v)))
			}
		}
		want := exact(s, group, i)
		if kernels.Bits(up) != kernels.Bits(want) || kernels.Bits(down) != kernels.Bits(want) {
			t.Fatalf("element %d: sums %v and %v, in integers %v", i, up, down, want)
		}
		if f, _ := exactSum.Float64(); finite && f != float64(want) {
			t.Fatalf("element %d: exact sum %v, in integers %v", i, f, want)
		}
		switch {
		case kernels.Bits(want) == 1<<31:
			negativeZero++
		case want != want:
			nan++
			if !s.term(group[0], i).nan && s.term(group[0], i).sign != 0 {
				opposite++
			}
		case math.IsInf(float64(want), 0):
			infinite++
		case want != 0 && want < 0x1p-126 && want > -0x1p-126:
			subnormals++
		}
	}
	if negativeZero == 0 || nan == 0 || infinite == 0 || subnormals == 0 || opposite == 0 {
		t.Errorf("of 4000 sums %d are -0, %d NaN (%d of opposite infinities), %d infinite, %d subnormal", negativeZero, nan, opposite, infinite, subnormals)
	}
}

// The recursive form of the tree on the shapes of its definition.
func TestRecursiveTree(t *testing.T) {
	a, b, c, d, e, f, g := float32(1), float32(0x1p-24), float32(0x1p-24), float32(-1), float32(3e-8), float32(0x1p-23), float32(7)
	for _, v := range []struct{ got, want float32 }{
		{recursiveTree([]float32{a}), a},
		{recursiveTree([]float32{a, b, c}), (a + b) + c},
		{recursiveTree([]float32{a, b, c, d}), (a + b) + (c + d)},
		{recursiveTree([]float32{a, b, c, d, e}), ((a + b) + (c + d)) + e},
		{recursiveTree([]float32{a, b, c, d, e, f}), ((a + b) + (c + d)) + (e + f)},
		{recursiveTree([]float32{a, b, c, d, e, f, g}), ((a + b) + (c + d)) + ((e + f) + g)},
	} {
		if v.got != v.want {
			t.Errorf("got %v, want %v", v.got, v.want)
		}
	}
}

// For more than three ranks, many Order inputs tell the tree from a left fold.
func TestOrderInputsShowOrder(t *testing.T) {
	s := source{kind: Order, base: hash(5)}
	differ := 0
	for i := range 1000 {
		x := make([]float32, 5)
		left := float32(0)
		for r := range x {
			x[r] = s.value(r, i)
			left += x[r]
		}
		if left != recursiveTree(x) {
			differ++
		}
	}
	if differ < 150 {
		t.Errorf("only %d of 1000 elements show the order", differ)
	}
}
