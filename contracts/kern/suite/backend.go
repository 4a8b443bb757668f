package suite

import (
	"math"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/kernels"
)

// faulty is a backend whose kernels can be wrong: each function, where there is
// one, takes the place of the kernel and is given the right backend; Do is called
// after the kernels that are right.
type faulty struct {
	fault.After

	matMulNT      func(be kernels.Backend, c, a, b kernels.Tensor, groups []int)
	matMulNN      func(be kernels.Backend, c kernels.Tensor, terms []kernels.Term)
	rmsNorm       func(be kernels.Backend, y, rstd, x, w kernels.Tensor, eps float64)
	rmsNormGrad   func(be kernels.Backend, dx, dw, dy, x, rstd, w, res kernels.Tensor)
	rope          func(be kernels.Backend, x, cos, sin kernels.Tensor, inverse bool)
	embedding     func(be kernels.Backend, x, table kernels.Tensor, tokens []int32, first int)
	attentionGrad func(be kernels.Backend, dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads)
	swiGLU        func(be kernels.Backend, h, z, u kernels.Tensor)
	logitsExpSum  func(be kernels.Backend, sum, z, max kernels.Tensor, groups []int)
	copy          func(be kernels.Backend, dst, src kernels.Tensor)
	addBias       func(be kernels.Backend, y, b kernels.Tensor)
	residual      func(be kernels.Backend, dst, x, y, b kernels.Tensor)
	adamW         func(be kernels.Backend, w, m, v, g kernels.Tensor, p kernels.AdamWParams)
	reduce        func(be kernels.Backend, dst, src []kernels.Tensor, op kernels.Op)
	sumSquares    func(be kernels.Backend, acc *kernels.SquareSum, x kernels.Tensor)
	hash          func(be kernels.Backend, d *kernels.Digest, x kernels.Tensor, at kernels.Place)
	hashChanged   func(be kernels.Backend, d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) int
	alloc         func(be kernels.Backend, n int) (kernels.Buffer, error)
}

// Unwrap shows the backend beneath, whose tally counts.
func (f *faulty) Unwrap() kernels.Backend { return f.Backend }

func (f *faulty) Alloc(n int) (kernels.Buffer, error) {
	if f.alloc != nil {
		return f.alloc(f.Backend, n)
	}
	return f.Backend.Alloc(n)
}

func (f *faulty) Copy(dst, src kernels.Tensor) {
	if f.copy != nil {
		f.copy(f.Backend, dst, src)
		return
	}
	f.After.Copy(dst, src)
}

func (f *faulty) AddBias(y, b kernels.Tensor) {
	if f.addBias != nil {
		f.addBias(f.Backend, y, b)
		return
	}
	f.After.AddBias(y, b)
}

func (f *faulty) Residual(dst, x, y, b kernels.Tensor) {
	if f.residual != nil {
		f.residual(f.Backend, dst, x, y, b)
		return
	}
	f.After.Residual(dst, x, y, b)
}

func (f *faulty) MatMulNT(c, a, b kernels.Tensor, groups []int) {
	if f.matMulNT != nil {
		f.matMulNT(f.Backend, c, a, b, groups)
		return
	}
	f.After.MatMulNT(c, a, b, groups)
}

func (f *faulty) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	if f.matMulNN != nil {
		f.matMulNN(f.Backend, c, terms)
		return
	}
	f.After.MatMulNN(c, terms)
}

func (f *faulty) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	if f.rmsNorm != nil {
		f.rmsNorm(f.Backend, y, rstd, x, w, eps)
		return
	}
	f.After.RMSNorm(y, rstd, x, w, eps)
}

func (f *faulty) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if f.rmsNormGrad != nil {
		f.rmsNormGrad(f.Backend, dx, dw, dy, x, rstd, w, res)
		return
	}
	f.After.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
}

func (f *faulty) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	if f.rope != nil {
		f.rope(f.Backend, x, cos, sin, inverse)
		return
	}
	f.After.Rope(x, cos, sin, inverse)
}

func (f *faulty) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	if f.attentionGrad != nil {
		f.attentionGrad(f.Backend, dq, dk, dv, do, p, q, k, v, h)
		return
	}
	f.After.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
}

func (f *faulty) SwiGLU(h, z, u kernels.Tensor) {
	if f.swiGLU != nil {
		f.swiGLU(f.Backend, h, z, u)
		return
	}
	f.After.SwiGLU(h, z, u)
}

func (f *faulty) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	if f.embedding != nil {
		f.embedding(f.Backend, x, table, tokens, first)
		return
	}
	f.After.Embedding(x, table, tokens, first)
}

func (f *faulty) LogitsExpSum(sum, z, max kernels.Tensor, groups []int) {
	if f.logitsExpSum != nil {
		f.logitsExpSum(f.Backend, sum, z, max, groups)
		return
	}
	f.After.LogitsExpSum(sum, z, max, groups)
}

func (f *faulty) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	if f.adamW != nil {
		f.adamW(f.Backend, w, m, v, g, p)
		return
	}
	f.After.AdamW(w, m, v, g, p)
}

func (f *faulty) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	if f.reduce != nil {
		f.reduce(f.Backend, dst, src, op)
		return
	}
	f.After.Reduce(dst, src, op)
}

func (f *faulty) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	if f.sumSquares != nil {
		f.sumSquares(f.Backend, acc, x)
		return
	}
	f.Backend.SumSquares(acc, x)
}

func (f *faulty) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	if f.hash != nil {
		f.hash(f.Backend, d, x, at)
		return
	}
	f.Backend.Hash(d, x, at)
}

func (f *faulty) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) int {
	if f.hashChanged != nil {
		return f.hashChanged(f.Backend, d, x, old, at)
	}
	return f.Backend.HashChanged(d, x, old, at)
}

// get reads the elements of a tensor, row by row.
func get(be kernels.Backend, t kernels.Tensor) []float32 {
	out := make([]float32, t.Len())
	for r := range t.Rows {
		// An error is a fault of the device, which shows by itself.
		_ = be.Read(out[r*t.Cols:(r+1)*t.Cols], t.RowRange(r, r+1))
	}
	return out
}

// put writes them.
func put(be kernels.Backend, t kernels.Tensor, x []float32) {
	for r := range t.Rows {
		be.Write(t.RowRange(r, r+1), x[r*t.Cols:(r+1)*t.Cols])
	}
}

// copied is a copy of a tensor in memory of its own, to be freed.
func copied(be kernels.Backend, t kernels.Tensor) (x kernels.Tensor, free func()) {
	buf, err := be.Alloc(t.Len())
	if err != nil {
		panic(err) // the drill reports it as a failure of the case
	}
	x = kernels.Flat(buf).As(t.Rows, t.Cols)
	put(be, x, get(be, t))
	return x, func() { be.Free(buf) }
}

// change replaces each element x by f(x).
func change(be kernels.Backend, t kernels.Tensor, f func(x float32) float32) {
	x := get(be, t)
	for i, v := range x {
		x[i] = f(v)
	}
	put(be, t, x)
}

// flip inverts the last bit of one element.
func flip(be kernels.Backend, t kernels.Tensor, row, col int) {
	change(be, t.RowRange(row, row+1).ColRange(col, col+1), func(x float32) float32 {
		return math.Float32frombits(math.Float32bits(x) ^ 1)
	})
}
