package kerneltest_test

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

type (
	normSerial      struct{ kernels.Backend }
	normWeightFirst struct{ kernels.Backend }
	normGradFresh   struct{ kernels.Backend }
	normGradNoRes   struct{ kernels.Backend }
	normGradMulAdd  struct{ kernels.Backend }
	ropeMulAdd      struct{ kernels.Backend }
	ropeUnwrapped   struct{ kernels.Backend }
	ropeForward     struct{ kernels.Backend }
	maskZeroed      struct{ kernels.Backend }
	maskMinusInf    struct{ kernels.Backend }
	attendSerial    struct{ kernels.Backend }
	headsSwapped    struct{ kernels.Backend }
	keyGroupsOne    struct{ kernels.Backend }
	keyContinues    struct{ kernels.Backend }
	gradReadsMasked struct{ kernels.Backend }
)

func blockMutants(b kernels.Backend) []mutant {
	return []mutant{
		{"RMSNorm", "sums squares one after the other", normSerial{b}},
		{"RMSNorm", "x*(rstd*w)", normWeightFirst{b}},
		{"RMSNorm", "rounds only at the end", wide{b}},
		{"RMSNormGrad", "dw starts from +0", normGradFresh{b}},
		{"RMSNormGrad", "forgets the residual in place", normGradNoRes{b}},
		{"RMSNormGrad", "dw by multiply, then add", normGradMulAdd{b}},
		{"Rope", "multiply, then add", ropeMulAdd{b}},
		{"Rope", "positions do not start again", ropeUnwrapped{b}},
		{"Rope", "ignores inverse", ropeForward{b}},
		{"Attention", "masked probabilities set to 0", maskZeroed{b}},
		{"Attention", "masked keys added with probability 0", maskMinusInf{b}},
		{"Attention", "sums exponentials one after the other", attendSerial{b}},
		{"Attention", "rounds only at the end", wide{b}},
		{"Attention", "query heads dealt to key heads in turn", headsSwapped{b}},
		{"AttentionGrad", "one chain over all key groups", keyGroupsOne{b}},
		{"AttentionGrad", "dk continues", keyContinues{b}},
		{"AttentionGrad", "reads masked probabilities", gradReadsMasked{b}},
		{"AttentionGrad", "rounds only at the end", wide{b}},
	}
}

func (m normSerial) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	m.Backend.RMSNorm(y, rstd, x, w, eps)
	a, s, h := get(m, x), get(m, w), x.Cols
	for r := range x.Rows {
		row, sum := a[r*h:(r+1)*h], float32(0)
		for _, v := range row {
			sum = ref.FMA32(v, v, sum)
		}
		k := 1 / float32(math.Sqrt(float64(sum/float32(h)+float32(eps))))
		m.Fill(rstd.Range(r, r+1), float64(k))
		for j := range row {
			row[j] = float32(row[j]*k) * s[j]
		}
	}
	put(m, y, a)
}

func (m normWeightFirst) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	m.Backend.RMSNorm(y, rstd, x, w, eps)
	a, s, k := get(m, x), get(m, w), get(m, rstd)
	for i := range a {
		a[i] *= k[i/x.Cols] * s[i%x.Cols]
	}
	put(m, y, a)
}

func (m wide) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	m.over(func(k kernels.Kernels, t []kernels.Tensor) { k.RMSNorm(t[0], t[1], t[2], t[3], eps) }, y, rstd, x, w)
}

func (m normGradFresh) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	old := get(m, dw)
	m.Fill(dw, 0)
	m.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	sum := get(m, dw)
	for i := range sum {
		sum[i] += old[i]
	}
	put(m, dw, sum)
}

func (m normGradNoRes) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if res == dx {
		res = kernels.Tensor{}
	}
	m.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
}

func (m normGradMulAdd) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	sum, a, b, k := get(m, dw), get(m, dy), get(m, x), get(m, rstd)
	for i := range a {
		j := i % x.Cols
		sum[j] = mulAdd(a[i], float32(b[i]*k[i/x.Cols]), sum[j])
	}
	m.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	put(m, dw, sum)
}

func (m ropeMulAdd) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	a, c, s, half := get(m, x), get(m, cos), get(m, sin), cos.Cols
	for i := range a {
		if i%(2*half) >= half {
			continue
		}
		at := i/x.Cols%cos.Rows*half + i%(2*half)
		cosine, sine := c[at], s[at]
		if inverse {
			sine = -sine
		}
		a[i], a[i+half] = mulAdd(-a[i+half], sine, float32(a[i]*cosine)), mulAdd(a[i], sine, float32(a[i+half]*cosine))
	}
	put(m, x, a)
}

func (m ropeUnwrapped) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	n := min(x.Rows, cos.Rows)
	m.Backend.Rope(x.RowRange(0, n), cos, sin, inverse)
	for r := n; r < x.Rows; r++ {
		m.Backend.Rope(x.RowRange(r, r+1), cos.RowRange(n-1, n), sin.RowRange(n-1, n), inverse)
	}
}

func (m ropeForward) Rope(x, cos, sin kernels.Tensor, _ bool) { m.Backend.Rope(x, cos, sin, false) }

func (m maskZeroed) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	m.Backend.Attention(o, p, q, k, v, h)
	for r := range p.Rows {
		m.Fill(p.RowRange(r, r+1).ColRange(r%h.T+1, h.T), 0)
	}
}

// maskMinusInf adds 0*v for every masked key, as a softmax over all columns does.
func (m maskMinusInf) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	m.Backend.Attention(o, p, q, k, v, h)
	x, y := get(m, o), get(m, v)
	for i := range x {
		row, head, d := i/o.Cols, i%o.Cols/h.Dim, i%h.Dim
		for j := row % h.T; j < h.T-1; j++ {
			next := row - row%h.T + j + 1
			x[i] = ref.FMA32(0, y[next*v.Cols+head/(h.Heads/h.KVHeads)*h.Dim+d], x[i])
		}
	}
	put(m, o, x)
}

// attendSerial is attention of one head, otherwise the right one.
func (m attendSerial) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	m.Backend.Attention(o, p, q, k, v, h)
	if h.Heads > 1 || h.Seqs > 1 {
		return
	}
	a, b := get(m, q), get(m, k)
	for t := range h.T {
		e, top, sum := make([]float32, t+1), float32(math.Inf(-1)), float32(0)
		for j := range e {
			for d := range h.Dim {
				e[j] = ref.FMA32(a[t*h.Dim+d], b[j*h.Dim+d], e[j])
			}
			e[j] *= float32(h.Scale)
			if e[j] > top {
				top = e[j]
			}
		}
		for j := range e {
			e[j] = ref.Exp32(e[j] - top)
			sum += e[j]
		}
		for j := range e {
			e[j] /= sum
		}
		m.Write(p.RowRange(t, t+1).ColRange(0, t+1), e)
	}
}

func (m wide) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	m.over(func(n kernels.Kernels, t []kernels.Tensor) { n.Attention(t[0], t[1], t[2], t[3], t[4], h) }, o, p, q, k, v)
}

// headsSwapped exchanges the first two key heads.
func (m headsSwapped) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	if h.KVHeads > 1 && h.Heads > h.KVHeads {
		x, y := get(m, k), make([]float32, k.Len())
		copy(y, x)
		for i := range x {
			if head := i % k.Cols / h.Dim; head == 0 {
				y[i], y[i+h.Dim] = x[i+h.Dim], x[i]
			}
		}
		put(m, k, y)
		defer put(m, k, x)
	}
	m.Backend.Attention(o, p, q, k, v, h)
}

func (m keyGroupsOne) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	h.KVGroups = 1
	m.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
}

func (m keyContinues) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	old := get(m, dk)
	m.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	x := get(m, dk)
	for i := range x {
		x[i] += old[i]
	}
	put(m, dk, x)
}

// gradReadsMasked adds each row's first masked probability, times do, to dv.
func (m gradReadsMasked) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	masked := get(m, p)
	m.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	if h.T < 2 || dv.Len() == 0 || p.Len() == 0 {
		return
	}
	x := get(m, dv)
	x[0] = ref.FMA32(masked[1], 1, x[0])
	put(m, dv, x)
}

func (m wide) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	m.over(func(n kernels.Kernels, t []kernels.Tensor) {
		n.AttentionGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], h)
	}, dq, dk, dv, do, p, q, k, v)
}
