package independent

import "math"

// rotation holds cos and sin of position t times frequency theta^(-2i/dim), as
// the float32 tables have them: rounded once, of an angle good to a few float64
// roundings.
type rotation struct {
	half     int
	cos, sin []value
}

func newRotation(rows, dim int, theta float64) *rotation {
	r := &rotation{half: dim / 2}
	for t := range rows {
		for i := range r.half {
			a := float64(t) * math.Pow(theta, -2*float64(i)/float64(dim))
			off := a*0x1p-49 + 0x1p-52
			entry := func(x float64) value { return value{x, math.Abs(x)*unit + off + tiny} }
			r.cos, r.sin = append(r.cos, entry(math.Cos(a))), append(r.sin, entry(math.Sin(a)))
		}
	}
	if rows > 0 { // position 0 is not rotated: 1 and 0 are exact
		for i := range r.half {
			r.cos[i], r.sin[i] = exact(1), exact(0)
		}
	}
	return r
}

// apply rotates each head of each row by its position, row i at position i mod T,
// the second half of a head against the first: forward (a, b) to
// (a*c - b*s, b*c + a*s), back by the opposite angle.
func (r *rotation) apply(x matrix, seqLen int, back bool) matrix {
	out := newMatrix(x.rows, x.cols)
	out.term = x.term
	dim := 2 * r.half
	for row := range x.rows {
		t := row % seqLen
		for head := 0; head < x.cols; head += dim {
			for i := range r.half {
				c, s := r.cos[t*r.half+i], r.sin[t*r.half+i]
				if back {
					s.v = -s.v
				}
				p := row*x.cols + head + i
				a, b := x.at(p), x.at(p+r.half)
				minus := value{-b.v, b.e}
				out.set(p, minus.fma(s, a.mul(c)))
				out.set(p+r.half, a.fma(s, b.mul(c)))
			}
		}
	}
	return out
}
