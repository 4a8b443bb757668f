package bound

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// unbound says that nothing is known about the elements of t.
func (b *Backend) unbound(ts ...kernels.Tensor) {
	for _, t := range ts {
		e := make([]float64, t.Len())
		for i := range e {
			e[i] = math.Inf(1)
		}
		b.setBounds(t, e)
	}
}

// AdamW takes the step; its results have no bound: where a gradient element is
// near 0 the direction of the step depends on its error, so a bound would say
// nothing. Judge gradients, and updates given the gradient.
func (b *Backend) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	kernels.CheckAdamW(w, m, v, g)
	b.both(func(k kernels.Kernels, at view) { k.AdamW(at(w), at(m), at(v), at(g), p) })
	b.unbound(w, m, v)
}

// SGD takes the step; as AdamW, its results have no bound.
func (b *Backend) SGD(w, buf, g kernels.Tensor, p kernels.SGDParams) {
	kernels.CheckSGD(w, buf, g)
	b.both(func(k kernels.Kernels, at view) { k.SGD(at(w), at(buf), at(g), p) })
	b.unbound(w, buf)
}

// Reduce: a sum of the present sources in any order, or a maximum.
func (b *Backend) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	kernels.CheckReduce(dst, src, op)
	if len(dst) == 0 {
		return
	}
	var present []operand
	for _, t := range src {
		if !t.Absent() {
			present = append(present, b.load(t))
		}
	}
	e := make([]float64, dst[0].Len())
	for i := range e {
		e[i] = reduced(present, i, op)
	}
	b.both(func(k kernels.Kernels, at view) { k.Reduce(views(dst, at), views(src, at), op) })
	for _, t := range dst {
		if len(present) == 0 {
			b.setBounds(t, e) // -0 or -Inf, by definition
			continue
		}
		b.store(t, append([]float64(nil), e...))
	}
}

// reduced is the bound of element i.
func reduced(src []operand, i int, op kernels.Op) float64 {
	if op == kernels.Max {
		return maximum(len(src), func(k int) value { return src[k].at(i) })
	}
	err, most := 0.0, 0.0
	for _, o := range src {
		err += o.e[i]
		most += o.at(i).most()
	}
	return sum(0, err, most, max(0, len(src)-1)).e
}

func views(ts []kernels.Tensor, at view) []kernels.Tensor {
	out := make([]kernels.Tensor, len(ts))
	for i, t := range ts {
		out[i] = at(t)
	}
	return out
}

// SumSquares adds the squares of the float32 values.
func (b *Backend) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	b.narrow.SumSquares(acc, narrow(x))
}

// Hash hashes the float32 values.
func (b *Backend) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	b.narrow.Hash(d, narrow(x), at)
}

// HashChanged compares the float32 values.
func (b *Backend) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) int {
	return b.narrow.HashChanged(d, narrow(x), narrow(old), at)
}
