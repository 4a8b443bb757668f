package bound

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// With sg(z) = 1/(1+exp(-z)), the activation is a(z) = z*sg(z), and
//
//	a'(z)  = sg*(1 + z*(1-sg))
//	a''(z) = sg*(1-sg)*(2 + z*(1-2*sg)),  |a''| <= 1/2 (at 0)
//	|a'''| <= 1/2 (it is below 0.31)
//
// so an error e of z moves a by at most |a'|e + e*e/4 and a' by |a''|e + e*e/4.
//
// The roundings: exp is off by 4u of itself, the sum by u, the quotient by u, so
// sg is off by less than 7u of itself; where exp leaves the range of float32, sg
// is below 2^-126. The roundings happen at the evaluation's z', where sg and 1-sg
// are within exp(e) of their values at z.

// logistic is sg at z: exact value, and the error of its roundings alone.
func logistic(z float64) value {
	s := 1 / (1 + math.Exp(-z))
	return value{s, float64(7*unit*s) + 0x1p-126}
}

// activation is a at z.
func activation(z value) value {
	s := logistic(z.x)
	slope := float64(s.x * (1 + float64(z.x*(1-s.x))))
	rounding := float64(z.most()*s.e) + float64(unit*product(z, s).most()) + tiny
	rounding = float64(rounding * (1 + growth(2*z.e)))
	return value{float64(z.x * s.x), float64(math.Abs(slope)*z.e) + float64(0.25*float64(z.e*z.e)) + rounding}
}

// slope is a' at z.
func slope(z value) value {
	s := logistic(z.x)
	at := value{math.Abs(z.x) + z.e, 0}
	r := mul(s, fma(at, sub(value{1, 0}, s), value{1, 0})) // larger than with z itself
	a1 := float64(s.x * (1 + float64(z.x*(1-s.x))))
	a2 := float64(float64(s.x*(1-s.x)) * (2 + float64(z.x*(1-2*s.x))))
	rounding := float64(r.e * (1 + growth(3*z.e)))
	return value{a1, float64(math.Abs(a2)*z.e) + float64(0.25*float64(z.e*z.e)) + rounding}
}

// SwiGLU: h = a(z)*u.
func (b *Backend) SwiGLU(h, z, u kernels.Tensor) {
	kernels.CheckSwiGLU(h, z, u)
	p, q := b.load(z), b.load(u)
	e := each(h.Len(), func(i int) value { return mul(activation(p.at(i)), q.at(i)) })
	b.both(func(k kernels.Kernels, at view) { k.SwiGLU(at(h), at(z), at(u)) })
	b.perToken(h, e)
}

// SwiGLUGrad: du = dh*a(z), dz = (dh*u)*a'(z).
func (b *Backend) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	kernels.CheckSwiGLUGrad(dz, du, dh, z, u)
	p, q, d := b.load(z), b.load(u), b.load(dh)
	eu := each(du.Len(), func(i int) value { return mul(d.at(i), activation(p.at(i))) })
	ez := each(dz.Len(), func(i int) value { return mul(mul(d.at(i), q.at(i)), slope(p.at(i))) })
	b.both(func(k kernels.Kernels, at view) { k.SwiGLUGrad(at(dz), at(du), at(dh), at(z), at(u)) })
	b.perToken(du, eu)
	b.perToken(dz, ez)
}
