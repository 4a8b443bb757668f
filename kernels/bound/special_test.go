package bound_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/bound"
)

// TestNothingCanBeSaid: where a denominator may vanish, a value may exceed
// float32 or a step was taken, the bound is +Inf.
func TestNothingCanBeSaid(t *testing.T) {
	b := bound.New()
	tensor := func(x ...float64) kernels.Tensor {
		buf, err := b.Alloc(len(x))
		if err != nil {
			t.Fatal(err)
		}
		b.WriteWide(kernels.Flat(buf), x)
		return kernels.Flat(buf)
	}
	want := func(name string, x kernels.Tensor) {
		t.Helper()
		for i, e := range b.Bounds(x) {
			if !math.IsInf(e, 1) {
				t.Errorf("%s: element %d has the bound %v, want +Inf", name, i, e)
			}
		}
	}
	y := tensor(0)
	b.Add(y, tensor(3e38), tensor(3e38))
	want("sum beyond float32", y)
	b.MatMulNT(y, tensor(1e20, 1e20), tensor(1e20, -1e20), nil)
	want("partial sum beyond float32", y)
	du := tensor(0)
	b.SwiGLUGrad(y, du, tensor(1e30), tensor(-80), tensor(1e30))
	want("intermediate product beyond float32", y)
	x := tensor(0, 0)
	b.Widen(x, []float64{1e-3, 1e-3})
	out, rstd := tensor(0, 0), tensor(0)
	b.RMSNorm(out, rstd, x, tensor(1, 1), 0)
	want("norm of a row that may be 0", rstd)
	w, m, v := tensor(1), tensor(0), tensor(0)
	b.AdamW(w, m, v, tensor(1), kernels.AdamWParams{LR: 1, Beta1: 0.9, Beta2: 0.9, Eps: 1, C1: 0.1, C2: 0.1, Coef: 1})
	for _, x := range []kernels.Tensor{w, m, v} {
		want("AdamW", x)
	}
	w = tensor(1)
	b.SGD(w, m, tensor(1), kernels.SGDParams{LR: 1, Coef: 1})
	want("SGD", w)
	// An element without a bound takes away those that depend on it, zero or not.
	b.MatMulNT(y, w, tensor(0), nil)
	want("product with an element without a bound", y)
}

// TestInputs: float32 inputs are exact, wider ones are off by their rounding.
func TestInputs(t *testing.T) {
	b := bound.New()
	buf, err := b.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	x := kernels.Flat(buf)
	b.WriteWide(x, []float64{0.1, 0.5, -0.3, 0})
	got := fmt.Sprint(b.Bounds(x))
	third, tenth := float64(float32(-0.3))+0.3, float64(float32(0.1))-0.1
	if e := b.Bounds(x); e[1] != 0 || e[3] != 0 || e[0] < tenth || e[0] > tenth*(1+1e-6) || e[2] < math.Abs(third) {
		t.Errorf("bounds %s of rounded inputs", got)
	}
	b.Write(x.Range(0, 1), []float32{0.1})
	if e := b.Bounds(x); e[0] != 0 || e[2] == 0 {
		t.Errorf("bounds %v after one element was written exactly", e)
	}
}
