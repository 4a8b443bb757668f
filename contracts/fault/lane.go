package fault

import (
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/kernels"
)

// outputs is how many outputs each kernel has.
var outputs = map[string]int{
	"Fill": 1, "Copy": 1, "Add": 1, "Scale": 1, "AddBias": 1, "Residual": 1, "ColumnSum": 1,
	"MatMulNT": 1, "MatMulNN": 1, "MatMulTN": 1,
	"RMSNorm": 2, "RMSNormGrad": 2, "Rope": 1, "Attention": 2, "AttentionGrad": 3, "SwiGLU": 1, "SwiGLUGrad": 2,
	"Embedding": 1, "EmbeddingGrad": 1, "LogitsMax": 2, "LogitsExpSum": 2, "CrossEntropy": 2,
	"AdamW": 3, "SGD": 2,
	"Reduce": 1, "SumSquares": 1, "Hash": 1, "HashChanged": 2,
}

// Lane is one output of one kernel.
type Lane struct {
	Kernel string // a method of kernels.Kernels
	Output int    // in the order of the method's arguments, from 0
}

// Lanes lists the outputs of all kernels.
func Lanes() []Lane {
	var out []Lane
	for _, k := range slices.Sorted(maps.Keys(outputs)) {
		for i := range outputs[k] {
			out = append(out, Lane{k, i})
		}
	}
	return out
}

// laneBit is the bit that is wrong: high in the mantissa, so that few roundings
// hide it.
const laneBit = 16

// WrongLane gives the last element of an output one wrong bit in every call of
// the kernel on all ranks, as a kernel does that handles the rest of a row wrong.
// Sums and digests take the last element twice, counts are one too large.
func WrongLane(l Lane) Fault {
	return OnBackend(Every, func(be kernels.Backend) kernels.Backend { return &lane{be, l} })
}

// lane is a backend one of whose kernels is wrong in one lane.
type lane struct {
	kernels.Backend
	at Lane
}

// last is the last element of x; ok is false where it has none.
func last(x kernels.Tensor) (kernels.Tensor, bool) {
	if x.Absent() || x.Len() == 0 {
		return kernels.Tensor{}, false
	}
	return kernels.Tensor{Buf: x.Buf, Off: x.Off + (x.Rows-1)*x.Stride + x.Cols - 1, Rows: 1, Cols: 1, Stride: 1}, true
}

// is reports whether an output is the wrong one.
func (l *lane) is(kernel string, output int) bool { return l.at == Lane{kernel, output} }

// hit spoils the output that is wrong.
func (l *lane) hit(kernel string, outs ...kernels.Tensor) {
	for i, x := range outs {
		if !l.is(kernel, i) {
			continue
		}
		if x, ok := last(x); ok {
			_ = Flip(l.Backend, x, laneBit) // a read error shows by itself
		}
	}
}

func (l *lane) Fill(x kernels.Tensor, v float64) {
	l.Backend.Fill(x, v)
	l.hit("Fill", x)
}

func (l *lane) Copy(dst, src kernels.Tensor) {
	l.Backend.Copy(dst, src)
	l.hit("Copy", dst)
}

func (l *lane) Add(dst, x, y kernels.Tensor) {
	l.Backend.Add(dst, x, y)
	l.hit("Add", dst)
}

func (l *lane) Scale(dst, x kernels.Tensor, s float64) {
	l.Backend.Scale(dst, x, s)
	l.hit("Scale", dst)
}

func (l *lane) AddBias(y, b kernels.Tensor) {
	l.Backend.AddBias(y, b)
	l.hit("AddBias", y)
}

func (l *lane) Residual(dst, x, y, b kernels.Tensor) {
	l.Backend.Residual(dst, x, y, b)
	l.hit("Residual", dst)
}

func (l *lane) ColumnSum(dst, x kernels.Tensor) {
	l.Backend.ColumnSum(dst, x)
	l.hit("ColumnSum", dst)
}

func (l *lane) MatMulNT(c, a, b kernels.Tensor, groups []int) {
	l.Backend.MatMulNT(c, a, b, groups)
	l.hit("MatMulNT", c)
}

func (l *lane) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	l.Backend.MatMulNN(c, terms)
	l.hit("MatMulNN", c)
}

func (l *lane) MatMulTN(c, a, b kernels.Tensor) {
	l.Backend.MatMulTN(c, a, b)
	l.hit("MatMulTN", c)
}

func (l *lane) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	l.Backend.RMSNorm(y, rstd, x, w, eps)
	l.hit("RMSNorm", y, rstd)
}

func (l *lane) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	l.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	l.hit("RMSNormGrad", dx, dw)
}

func (l *lane) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	l.Backend.Rope(x, cos, sin, inverse)
	l.hit("Rope", x)
}

func (l *lane) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	l.Backend.Attention(o, p, q, k, v, h)
	l.hit("Attention", o, p)
}

func (l *lane) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	l.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	l.hit("AttentionGrad", dq, dk, dv)
}

func (l *lane) SwiGLU(h, z, u kernels.Tensor) {
	l.Backend.SwiGLU(h, z, u)
	l.hit("SwiGLU", h)
}

func (l *lane) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	l.Backend.SwiGLUGrad(dz, du, dh, z, u)
	l.hit("SwiGLUGrad", dz, du)
}

func (l *lane) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	l.Backend.Embedding(x, table, tokens, first)
	l.hit("Embedding", x)
}

func (l *lane) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	l.Backend.EmbeddingGrad(dtable, dx, tokens, first)
	l.hit("EmbeddingGrad", dtable)
}

func (l *lane) LogitsMax(most, target, z kernels.Tensor, targets []int32, first int) {
	l.Backend.LogitsMax(most, target, z, targets, first)
	l.hit("LogitsMax", most, target)
}

func (l *lane) LogitsExpSum(sum, z, most kernels.Tensor, groups []int) {
	l.Backend.LogitsExpSum(sum, z, most, groups)
	l.hit("LogitsExpSum", sum, z)
}

func (l *lane) CrossEntropy(nll, z, sum, most, target kernels.Tensor, targets []int32, first int, invN float64) {
	l.Backend.CrossEntropy(nll, z, sum, most, target, targets, first, invN)
	l.hit("CrossEntropy", nll, z)
}

func (l *lane) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	l.Backend.AdamW(w, m, v, g, p)
	l.hit("AdamW", w, m, v)
}

func (l *lane) SGD(w, b, g kernels.Tensor, p kernels.SGDParams) {
	l.Backend.SGD(w, b, g, p)
	l.hit("SGD", w, b)
}

func (l *lane) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	l.Backend.Reduce(dst, src, op)
	if len(dst) > 0 {
		l.hit("Reduce", dst[len(dst)-1])
	}
}

func (l *lane) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	l.Backend.SumSquares(acc, x)
	if x, ok := last(x); ok && l.is("SumSquares", 0) {
		l.Backend.SumSquares(acc, x)
	}
}

func (l *lane) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	l.Backend.Hash(d, x, at)
	if end, ok := last(x); ok && l.is("Hash", 0) {
		l.Backend.Hash(d, end, lastPlace(x, at))
	}
}

func (l *lane) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) int {
	n := l.Backend.HashChanged(d, x, old, at)
	if end, ok := last(x); ok && l.is("HashChanged", 0) {
		l.Backend.Hash(d, end, lastPlace(x, at))
	}
	if l.is("HashChanged", 1) {
		n++
	}
	return n
}

// lastPlace is the place of the last element of x.
func lastPlace(x kernels.Tensor, at kernels.Place) kernels.Place {
	at.First += uint64(x.Rows-1)*at.RowStride + uint64(x.Cols-1)
	return at
}
