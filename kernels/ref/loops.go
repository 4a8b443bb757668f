package ref

import "math"

// The inner loops. The float32 ones are written out, with the check of FMA32 in
// the loop: a call per element would triple their cost. Independent chains run
// side by side, the order inside a chain is k ascending.

// dot4 continues four chains over k: c_i = fma(a[k], b_i[k], c_i).
func dot4[T Float](c *[4]T, a, b0, b1, b2, b3 []T) {
	if is32[T]() {
		c0, c1, c2, c3 := dot4x32(float32(c[0]), float32(c[1]), float32(c[2]), float32(c[3]), as32(a), as32(b0), as32(b1), as32(b2), as32(b3))
		c[0], c[1], c[2], c[3] = T(c0), T(c1), T(c2), T(c3)
		return
	}
	for i, b := range [4][]T{b0, b1, b2, b3} {
		c[i] = T(dot64(float64(c[i]), as64(a), as64(b)))
	}
}

func dot4x32(c0, c1, c2, c3 float32, a, b0, b1, b2, b3 []float32) (float32, float32, float32, float32) {
	b0, b1, b2, b3 = b0[:len(a)], b1[:len(a)], b2[:len(a)], b3[:len(a)]
	for k, x := range a {
		s0, s1 := wideSum(x, b0[k], c0), wideSum(x, b1[k], c1)
		s2, s3 := wideSum(x, b2[k], c2), wideSum(x, b3[k], c3)
		if roundsOnce(s0) && roundsOnce(s1) && roundsOnce(s2) && roundsOnce(s3) {
			c0, c1, c2, c3 = float32(s0), float32(s1), float32(s2), float32(s3)
			continue
		}
		c0, c1 = FMA32(x, b0[k], c0), FMA32(x, b1[k], c1)
		c2, c3 = FMA32(x, b2[k], c2), FMA32(x, b3[k], c3)
	}
	return c0, c1, c2, c3
}

// dot continues one chain over k: c = fma(a[k], b[k], c).
func dot[T Float](c T, a, b []T) T {
	if is32[T]() {
		return T(dot32(float32(c), as32(a), as32(b)))
	}
	return T(dot64(float64(c), as64(a), as64(b)))
}

func dot32(c float32, a, b []float32) float32 {
	b = b[:len(a)]
	for k, x := range a {
		if s := wideSum(x, b[k], c); roundsOnce(s) {
			c = float32(s)
		} else {
			c = repairedFMA(x, b[k], c)
		}
	}
	return c
}

func dot64(c float64, a, b []float64) float64 {
	b = b[:len(a)]
	for k, x := range a {
		c = math.FMA(x, b[k], c)
	}
	return c
}

// dots writes n chains from +0: c[i] = chain(a, row i of b), where row i starts
// at b[i*stride] and is as long as a.
func dots[T Float](c, a, b []T, stride int) {
	i, k := 0, len(a)
	if k == 0 {
		clear(c) // b may be too short to be sliced
		return
	}
	for ; i+4 <= len(c); i += 4 {
		r := i * stride
		var acc [4]T
		dot4(&acc, a, b[r:r+k], b[r+stride:r+stride+k], b[r+2*stride:r+2*stride+k], b[r+3*stride:r+3*stride+k])
		*(*[4]T)(c[i:]) = acc
	}
	for ; i < len(c); i++ {
		c[i] = dot(0, a, b[i*stride:i*stride+k])
	}
}

// axpy continues a chain in every element of c: c[j] = fma(a, b[j], c[j]).
func axpy[T Float](c []T, a T, b []T) {
	if is32[T]() {
		axpy32(as32(c), float32(a), as32(b))
		return
	}
	axpy64(as64(c), float64(a), as64(b))
}

func axpy32(c []float32, a float32, b []float32) {
	b = b[:len(c)]
	j := 0
	for ; j+4 <= len(c); j += 4 {
		y, x := (*[4]float32)(c[j:]), (*[4]float32)(b[j:])
		s0, s1 := wideSum(a, x[0], y[0]), wideSum(a, x[1], y[1])
		s2, s3 := wideSum(a, x[2], y[2]), wideSum(a, x[3], y[3])
		if roundsOnce(s0) && roundsOnce(s1) && roundsOnce(s2) && roundsOnce(s3) {
			y[0], y[1], y[2], y[3] = float32(s0), float32(s1), float32(s2), float32(s3)
			continue
		}
		for i := range y {
			y[i] = FMA32(a, x[i], y[i])
		}
	}
	for ; j < len(c); j++ {
		c[j] = FMA32(a, b[j], c[j])
	}
}

func axpy64(c []float64, a float64, b []float64) {
	b = b[:len(c)]
	for j := range c {
		c[j] = math.FMA(a, b[j], c[j])
	}
}

// products continues a chain per element with its own factors:
// c[j] = fma(a[j], b[j], c[j]).
func products[T Float](c, a, b []T) {
	a, b = a[:len(c)], b[:len(c)]
	for j := range c {
		c[j] = fma(a[j], b[j], c[j])
	}
}

// addTo: c[j] = c[j] + b[j].
func addTo[T Float](c, b []T) {
	b = b[:len(c)]
	for j := range c {
		c[j] += b[j]
	}
}

// laneCount is the number of accumulators of lanes().
const laneCount = 32

// lanesDot is lanes(a*b): products enter their lane by fma.
func lanesDot[T Float](a, b []T) T {
	var l [laneCount]T
	b = b[:len(a)]
	for len(a) >= laneCount {
		axpyLanes(&l, (*[laneCount]T)(a), (*[laneCount]T)(b))
		a, b = a[laneCount:], b[laneCount:]
	}
	products(l[:len(a)], a, b)
	return foldLanes(&l)
}

func axpyLanes[T Float](l, a, b *[laneCount]T) {
	if !is32[T]() {
		products(l[:], a[:], b[:])
		return
	}
	x, y, acc := as32(a[:]), as32(b[:]), as32(l[:])
	for i := range acc {
		if s := wideSum(x[i], y[i], acc[i]); roundsOnce(s) {
			acc[i] = float32(s)
		} else {
			acc[i] = repairedFMA(x[i], y[i], acc[i])
		}
	}
}

// lanesSum is lanes(a).
func lanesSum[T Float](a []T) T {
	var l [laneCount]T
	for len(a) >= laneCount {
		addTo(l[:], a[:laneCount])
		a = a[laneCount:]
	}
	addTo(l[:len(a)], a)
	return foldLanes(&l)
}

// foldLanes adds the lanes pairwise, all of them, whether or not they took an
// element.
func foldLanes[T Float](l *[laneCount]T) T {
	for d := laneCount / 2; d >= 1; d /= 2 {
		addTo(l[:d], l[d:2*d])
	}
	return l[0]
}
