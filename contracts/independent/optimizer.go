package independent

import (
	"fmt"
	"math"
)

// Optimizer says how parameters are updated.
type Optimizer struct {
	Name              string // "adamw" or "sgd"
	LR                float64
	Beta1, Beta2, Eps float64 // AdamW
	Momentum          float64 // SGD
	Decay             float64 // of matrices; negative is none
	Clip              float64 // largest global norm; 0 clips nothing
	Warmup, Horizon   int
	MinLR             float64
	// Arithmetic is the version of the canonical arithmetic: in version 1, 1-beta is
	// the float32 difference of 1 and the rounded beta, which float64 does not
	// match; from version 2 on it is 1-beta, rounded once.
	Arithmetic int
}

// Rate is the learning rate of the step after taken others: it rises linearly to
// LR over Warmup steps, the first of which has LR/Warmup; then it falls from LR
// to MinLR by half a cosine that ends at step Horizon, where there is one.
func (o *Optimizer) Rate(taken int) float64 {
	if taken < o.Warmup {
		return o.LR * (float64(taken+1) / float64(o.Warmup))
	}
	if o.Horizon <= 0 {
		return o.LR
	}
	done := min(float64(taken-o.Warmup)/float64(o.Horizon-o.Warmup), 1)
	half := math.Cos(math.Pi * done / 2) // (1+cos x)/2 = cos(x/2)^2
	return o.MinLR + (o.LR-o.MinLR)*half*half
}

// rateError is what two float64 evaluations of a rate may differ by, in parts of
// LR: a dozen roundings and a cosine on either side.
const rateError = 1e-15

// rate is a learning rate as an update has it.
func (o *Optimizer) rate(x float64) value {
	lr := host(x)
	lr.e += rateError * o.LR
	return lr
}

// RateIs says whether a recorded rate is Rate.
func (o *Optimizer) RateIs(taken int, recorded float64) bool {
	return math.Abs(recorded-o.Rate(taken)) <= rateError*o.LR
}

// Norm is the Euclidean norm over all parameters of a float32 gradient: squares are
// exact in float64, their sum is compensated (Neumaier), good to some 2^-52.
func Norm(grads map[string][]float32) float64 {
	sum, lost := 0.0, 0.0
	for _, g := range grads {
		for _, f := range g {
			x := float64(f) * float64(f)
			s := sum + x
			if sum >= x {
				lost += (sum - s) + x
			} else {
				lost += (x - s) + sum
			}
			sum = s
		}
	}
	if math.IsInf(sum, 0) || math.IsNaN(sum) {
		return sum // the compensation of an infinite sum is none
	}
	return math.Sqrt(sum + lost)
}

// NormIs says whether a recorded norm is that of a recorded gradient.
func NormIs(grads map[string][]float32, recorded float64) bool {
	want := Norm(grads)
	if math.IsNaN(want) || math.IsInf(want, 0) {
		return math.IsNaN(recorded) == math.IsNaN(want) && (math.IsNaN(want) || recorded == want)
	}
	return math.Abs(recorded-want) <= 0x1p-48*want
}

// Coefficient is the factor of a gradient of the given norm: clip/(norm+1e-6) where
// that is below 1.
func (o *Optimizer) Coefficient(norm float64) float64 {
	if o.Clip > 0 && o.Clip < norm+1e-6 {
		return o.Clip / (norm + 1e-6)
	}
	return 1
}

// Moments names the optimizer's state.
func (o *Optimizer) Moments() []string {
	if o.Name == "sgd" {
		return []string{"momentum"}
	}
	return []string{"m", "v"}
}

// Update is one step of one parameter after taken others, from recorded weights,
// moments (in the order of Moments) and gradient, with the learning rate and the
// coefficient that the step must apply: those of Rate and Coefficient, or the
// recorded ones. It gives the weights and the moments
// afterwards. It refuses lengths that differ.
//
// AdamW (Loshchilov and Hutter, Algorithm 2), t = taken+1: g' = g*coef;
// m = b1*m + (1-b1)*g'; v = b2*v + (1-b2)*g'^2;
// w -= lr*((m/(1-b1^t))/(sqrt(v/(1-b2^t))+eps) + decay*w).
// SGD: g' = g*coef + decay*w; b = momentum*b + g'; w -= lr*b.
func (o *Optimizer) Update(p Param, w, g []float32, moments [][]float32, taken int, rate, coef float64) (weights Bounded, after []Bounded, err error) {
	if len(moments) != len(o.Moments()) {
		return weights, nil, fmt.Errorf("independent update of %s: %d moments, want %v", p.Name, len(moments), o.Moments())
	}
	for _, x := range append([][]float32{w, g}, moments...) {
		if len(x) != p.Len() {
			return weights, nil, fmt.Errorf("independent update of %s: %d elements, want %d", p.Name, len(x), p.Len())
		}
	}
	decay := 0.0
	if p.Decays && o.Decay > 0 {
		decay = o.Decay
	}
	step := o.adamW(taken, rate, coef, decay)
	if o.Name == "sgd" {
		step = o.sgd(rate, coef, decay)
	}
	out := make([]Bounded, 1+len(moments))
	for i := range out {
		out[i] = Bounded{make([]float64, len(w)), make([]float64, len(w))}
	}
	state := make([]value, len(moments))
	for i := range w {
		for j, m := range moments {
			state[j] = exact(float64(m[i]))
		}
		x := step(exact(float64(w[i])), exact(float64(g[i])), state)
		out[0].Value[i], out[0].Bound[i] = x.v, x.e
		for j, m := range state {
			out[1+j].Value[i], out[1+j].Bound[i] = m.v, m.e
		}
	}
	return out[0], out[1:], nil
}

// complement is 1-beta as the update has it.
func (o *Optimizer) complement(beta float64) value {
	x := host(1 - beta)
	if o.Arithmetic < 2 {
		x.e += unit * (math.Abs(beta) + 1) // of beta, and of the difference
	}
	return x
}

// correction is 1-beta^t; powers lose less than t roundings of float64.
func correction(beta float64, t int) value {
	x := host(1 - math.Pow(beta, float64(t)))
	x.e += math.Pow(beta, float64(t)) * min(float64(t+4)*0x1p-52, 1)
	return x
}

func (o *Optimizer) adamW(taken int, rate, coef, decay float64) func(w, g value, state []value) value {
	b1, b2, r1, r2 := host(o.Beta1), host(o.Beta2), o.complement(o.Beta1), o.complement(o.Beta2)
	c1, c2 := correction(o.Beta1, taken+1), correction(o.Beta2, taken+1)
	lr, eps, wd, factor := o.rate(rate), host(o.Eps), host(decay), host(coef)
	return func(w, g value, state []value) value {
		g = g.mul(factor)
		m := r1.fma(g, b1.mul(state[0]))
		v := r2.fma(g.mul(g), b2.mul(state[1]))
		state[0], state[1] = m, v
		u := m.div(c1).div(v.div(c2).sqrt().add(eps))
		u = wd.fma(w, u)
		return value{-lr.v, lr.e}.fma(u, w)
	}
}

func (o *Optimizer) sgd(rate, coef, decay float64) func(w, g value, state []value) value {
	mu, lr, wd, factor := host(o.Momentum), o.rate(rate), host(decay), host(coef)
	return func(w, g value, state []value) value {
		g = wd.fma(w, g.mul(factor))
		state[0] = mu.fma(state[0], g)
		return value{-lr.v, lr.e}.fma(state[0], w)
	}
}
