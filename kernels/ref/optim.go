package ref

import "github.com/lockstep-ml/lockstep/kernels"

// AdamW implements kernels.Kernels.
func (b *Backend[T]) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	const name = "adamw"
	weight := flat[T](name, w)
	n := len(weight)
	first, second, grad := sized[T](name, m, n), sized[T](name, v, n), sized[T](name, g, n)
	b1, b2, c1, c2 := T(p.Beta1), T(p.Beta2), T(p.C1), T(p.C2)
	lr, eps, decay, coef := T(p.LR), T(p.Eps), T(p.Decay), T(p.Coef)
	r1, r2 := T(1-p.Beta1), T(1-p.Beta2) // of the float64 beta: 1-b1 would carry b1's rounding error
	for i, x := range grad {
		x *= coef
		mi := fma(r1, x, T(b1*first[i]))
		vi := fma(r2, T(x*x), T(b2*second[i]))
		first[i], second[i] = mi, vi
		u := (mi / c1) / (root(vi/c2) + eps)
		u = fma(decay, weight[i], u)
		weight[i] = fma(-lr, u, weight[i])
	}
}

// SGD implements kernels.Kernels.
func (b *Backend[T]) SGD(w, buf, g kernels.Tensor, p kernels.SGDParams) {
	const name = "sgd"
	weight := flat[T](name, w)
	n := len(weight)
	momentum, grad := sized[T](name, buf, n), sized[T](name, g, n)
	lr, mu, decay, coef := T(p.LR), T(p.Momentum), T(p.Decay), T(p.Coef)
	for i, x := range grad {
		x = fma(decay, weight[i], T(x*coef))
		momentum[i] = fma(mu, momentum[i], x)
		weight[i] = fma(-lr, momentum[i], weight[i])
	}
}
