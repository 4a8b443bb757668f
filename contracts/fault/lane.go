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
	return OnBackend(Every, l.on)
}

// on is a backend with the wrong lane.
func (l Lane) on(be kernels.Backend) kernels.Backend { return &lane{After{be, l.hit}, l} }

// lane is a backend one of whose kernels is wrong in one lane.
type lane struct {
	After
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

// hit spoils the output that is wrong; of Reduce's, which are all one output, the
// last.
func (l Lane) hit(be kernels.Backend, kernel string, outs ...kernels.Tensor) {
	if kernel == "Reduce" && len(outs) > 0 {
		outs = outs[len(outs)-1:]
	}
	if kernel != l.Kernel || l.Output >= len(outs) {
		return
	}
	if x, ok := last(outs[l.Output]); ok {
		_ = Flip(be, x, laneBit) // a read error shows by itself
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
