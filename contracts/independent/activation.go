package independent

import "math"

// sigmoid is 1/(1+exp(-z)): an error of z changes it by at most e*s(1-s)*exp(e)
// and by e/4, exp(-z) is off by ulps, sum and quotient round. Where exp overflows
// float32 the result is 0 instead of less than 2^-127.
func sigmoid(z value) value {
	var s, rest float64 // s and 1-s, without cancellation
	if z.v >= 0 {
		t := math.Exp(-z.v)
		s, rest = 1/(1+t), t/(1+t)
	} else {
		t := math.Exp(z.v)
		s, rest = t/(1+t), 1/(1+t)
	}
	e := 0.0
	if z.e > 0 {
		e = min(s*rest*math.Exp(z.e), 0.25) * z.e
	}
	e += (s + e) * (ulps*min(rest+z.e, 1) + 2.5*unit)
	if z.v-z.e < -80 {
		e += 0x1p-126
	}
	return value{s, e + tiny}
}

// swiGLU is h = (z*sigmoid(z))*u.
func swiGLU(z, u matrix) matrix {
	h := newMatrix(z.rows, z.cols)
	for i := range z.v {
		h.set(i, z.at(i).mul(sigmoid(z.at(i))).mul(u.at(i)))
	}
	return h
}

// swiGLUGrad, with s = sigmoid(z): du = dh*(z*s);
// dz = (dh*u)*(s*(1 + z*(1-s))).
func swiGLUGrad(dh, z, u matrix) (dz, du matrix) {
	dz, du = newMatrix(z.rows, z.cols), newMatrix(z.rows, z.cols)
	for i := range z.v {
		d, a := dh.at(i), z.at(i)
		s := sigmoid(a)
		du.set(i, d.mul(a.mul(s)))
		dz.set(i, d.mul(u.at(i)).mul(s.mul(a.fma(exact(1).sub(s), exact(1)))))
	}
	return dz, du
}

// softmax leaves exp(s_j - m) / sum in p, m the largest score, and gives
// log sum exp(s_j) in real arithmetic, and by which factor 1 +- off the float32
// sum of exp(s_j - m) may be wrong. spread is how many roundings an addend of the
// sum passes.
//
// The quotient does not depend on m. Exponential j is wrong by a factor 1 +- r_j,
// of the error of its score, of the subtraction and of exp. Then the quotient's
// reciprocal, the sum of e_i/e_j, is wrong by the mean of (r_i + r_j)/(1 - r_j)
// over the other i, since e_j/e_j is not wrong at all.
func softmax(s, p []value, spread int) (logSum, off float64) {
	top, topErr := math.Inf(-1), 0.0
	for _, x := range s {
		top, topErr = max(top, x.v), max(topErr, x.e)
	}
	sum, mean := 0.0, 0.0
	for j, x := range s {
		a := x.e + unit*(top-x.v+topErr+x.e)
		e := math.Exp(x.v - top)
		p[j] = value{e, math.Expm1(a)*(1+ulps) + ulps}
		sum += e
		mean += e * p[j].e
	}
	mean /= sum
	round := gamma(spread) + 2*unit
	for j := range p {
		v, r := p[j].v/sum, p[j].e
		k := (mean-v*r+(1-v)*r)/(1-r) + round
		if !(r < 0.5 && k < 0.5) {
			k = math.Inf(1)
		}
		// Exponentials in the subnormal range, over a sum of at least 1.
		p[j] = value{v, v*(k/(1-k)) + 0x1p-147}
		if math.IsInf(k, 1) {
			p[j].e = 1.001 // a quotient of a term by a sum of terms
		}
	}
	return top + math.Log(sum), mean + gamma(spread)*(1+mean)
}
