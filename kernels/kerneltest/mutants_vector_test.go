package kerneltest_test

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

type (
	fillTail      struct{ kernels.Backend }
	fillTruncates struct{ kernels.Backend }
	copyQuiets    struct{ kernels.Backend }
	addFlushes    struct{ kernels.Backend }
	addTail       struct{ kernels.Backend }
	scaleWide     struct{ kernels.Backend }
	biasDense     struct{ kernels.Backend }
	residualLeft  struct{ kernels.Backend }
	residualAlias struct{ kernels.Backend }
	columnFresh   struct{ kernels.Backend }
	columnDown    struct{ kernels.Backend }
	swigluRight   struct{ kernels.Backend }
	swigluGradFMA struct{ kernels.Backend }
	swigluHazard  struct{ kernels.Backend }
	adamDecoupled struct{ kernels.Backend }
	adamMulAdd    struct{ kernels.Backend }
	sgdNesterov   struct{ kernels.Backend }
	sgdAligned    struct{ kernels.Backend }
)

func vectorMutants(b kernels.Backend) []mutant {
	return []mutant{
		{"Fill", "stops before the tail", fillTail{b}},
		{"Fill", "truncates the scalar", fillTruncates{b}},
		{"Copy", "loses what a NaN carries", copyQuiets{b}},
		{"Add", "flushes subnormals", addFlushes{b}},
		{"Add", "goes wrong in the last of 4k+1 elements", addTail{b}},
		{"Scale", "does not round the scalar first", scaleWide{b}},
		{"AddBias", "ignores the stride", biasDense{b}},
		{"Residual", "adds from the left", residualLeft{b}},
		{"Residual", "sets dst before it reads y", residualAlias{b}},
		{"ColumnSum", "starts from +0", columnFresh{b}},
		{"ColumnSum", "rows descending", columnDown{b}},
		{"SwiGLU", "z*(sg*u)", swigluRight{b}},
		{"SwiGLU", "rounds only at the end", wide{b}},
		{"SwiGLUGrad", "multiply, then add", swigluGradFMA{b}},
		{"SwiGLUGrad", "sets du before it reads u for dz", swigluHazard{b}},
		{"AdamW", "decays the weight first", adamDecoupled{b}},
		{"AdamW", "rounds only at the end", wide{b}},
		{"AdamW", "multiply, then add", adamMulAdd{b}},
		{"SGD", "adds the gradient to the step", sgdNesterov{b}},
		{"SGD", "goes wrong at an odd offset", sgdAligned{b}},
	}
}

// truncated rounds toward zero.
func truncated(v float64) float32 {
	x := float32(v)
	if math.Abs(float64(x)) > math.Abs(v) && v == v {
		return math.Float32frombits(math.Float32bits(x) - 1)
	}
	return x
}

func (m fillTail) Fill(x kernels.Tensor, v float64) {
	if n := x.Len(); n > 16 {
		x = x.Range(0, n/16*16)
	}
	m.Backend.Fill(x, v)
}

func (m fillTruncates) Fill(x kernels.Tensor, v float64) { m.Backend.Fill(x, float64(truncated(v))) }

func (m copyQuiets) Copy(dst, src kernels.Tensor) {
	x := get(m, src)
	for i := range x {
		x[i] = math.Float32frombits(kernels.Bits(x[i]))
	}
	put(m, dst, x)
}

func (m addFlushes) Add(dst, x, y kernels.Tensor) {
	a, b := get(m, x), get(m, y)
	for i := range a {
		a[i] += b[i]
		if a[i] > -0x1p-126 && a[i] < 0x1p-126 && a[i] != 0 {
			a[i] = 0
		}
	}
	put(m, dst, a)
}

func (m addTail) Add(dst, x, y kernels.Tensor) {
	n := dst.Len()
	m.Backend.Add(dst, x, y)
	if n%4 == 1 && n > 1000 {
		m.Copy(dst.Range(n-1, n), dst.Range(n-2, n-1))
	}
}

func (m scaleWide) Scale(dst, x kernels.Tensor, s float64) {
	a := get(m, x)
	for i := range a {
		a[i] = float32(float64(a[i]) * s)
	}
	put(m, dst, a)
}

func (m biasDense) AddBias(y, b kernels.Tensor) {
	y.Stride = y.Cols
	m.Backend.AddBias(y, b)
}

func (m residualLeft) Residual(dst, x, y, b kernels.Tensor) {
	m.Backend.Residual(dst, x, y, kernels.Tensor{})
	if !b.Absent() {
		m.Backend.AddBias(dst, b)
	}
}

func (m residualAlias) Residual(dst, x, y, b kernels.Tensor) {
	m.Copy(dst, x)
	m.Backend.Residual(dst, dst, y, b)
}

func (m columnFresh) ColumnSum(dst, x kernels.Tensor) {
	old := get(m, dst)
	m.Fill(dst, 0)
	m.Backend.ColumnSum(dst, x)
	sum := get(m, dst)
	for i := range sum {
		sum[i] += old[i]
	}
	put(m, dst, sum)
}

func (m columnDown) ColumnSum(dst, x kernels.Tensor) {
	for r := x.Rows - 1; r >= 0; r-- {
		m.Backend.ColumnSum(dst, x.RowRange(r, r+1))
	}
}

// sigmoid is sg of the definition.
func sigmoid(z float32) float32 { return 1 / (1 + ref.Exp32(-z)) }

func (m swigluRight) SwiGLU(h, z, u kernels.Tensor) {
	a, b := get(m, z), get(m, u)
	for i := range a {
		a[i] *= sigmoid(a[i]) * b[i]
	}
	put(m, h, a)
}

func (m wide) SwiGLU(h, z, u kernels.Tensor) {
	m.over(func(k kernels.Kernels, t []kernels.Tensor) { k.SwiGLU(t[0], t[1], t[2]) }, h, z, u)
}

func (m swigluGradFMA) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	a, b, c := get(m, dh), get(m, z), get(m, u)
	x, y := make([]float32, len(a)), make([]float32, len(a))
	for i := range a {
		sg := sigmoid(b[i])
		y[i] = a[i] * float32(b[i]*sg)
		x[i] = float32(a[i]*c[i]) * float32(sg*mulAdd(b[i], 1-sg, 1))
	}
	put(m, dz, x)
	put(m, du, y)
}

func (m swigluHazard) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	a, b := get(m, dh), get(m, z)
	for i := range a {
		a[i] *= float32(b[i] * sigmoid(b[i]))
	}
	put(m, du, a)
	m.Backend.SwiGLUGrad(dz, du, dh, z, u)
	put(m, du, a)
}

func (m adamDecoupled) AdamW(w, a, v, g kernels.Tensor, p kernels.AdamWParams) {
	m.Scale(w, w, 1-float64(p.LR*p.Decay))
	p.Decay = 0
	m.Backend.AdamW(w, a, v, g, p)
}

func (m wide) AdamW(w, a, v, g kernels.Tensor, p kernels.AdamWParams) {
	m.over(func(k kernels.Kernels, t []kernels.Tensor) { k.AdamW(t[0], t[1], t[2], t[3], p) }, w, a, v, g)
}

func (m adamMulAdd) AdamW(w, a, v, g kernels.Tensor, p kernels.AdamWParams) {
	old, grad := get(m, a), get(m, g)
	m.Backend.AdamW(w, a, v, g, p)
	for i := range old {
		old[i] = mulAdd(float32(1)-float32(p.Beta1), grad[i]*float32(p.Coef), float32(float32(p.Beta1)*old[i]))
	}
	put(m, a, old)
}

func (m sgdNesterov) SGD(w, b, g kernels.Tensor, p kernels.SGDParams) {
	m.Backend.SGD(w, b, g, p)
	x, y := get(m, w), get(m, g)
	for i := range x {
		x[i] = ref.FMA32(float32(-p.LR), y[i], x[i])
	}
	put(m, w, x)
}

func (m sgdAligned) SGD(w, b, g kernels.Tensor, p kernels.SGDParams) {
	m.Backend.SGD(w, b, g, p)
	if w.Off%2 == 1 && g.Off%2 == 0 && w.Len() > 16 {
		m.Fill(w.Range(15, 16), 0)
	}
}
