package othertrainer

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// This file is a backend of one's own. The way to write one is kernel by kernel:
// embed the reference, replace one method, run the suite. TestBackend does.

// Backend replaces the reference's matrix product. On real hardware it would own
// its memory too; here it works on the reference's.
type Backend struct {
	*ref.Backend[float32]
	// MultiplyAdd is a*b + c of the product: MultiplyAdd unless a test plants a bug.
	MultiplyAdd func(a, b, c float32) float32
}

// NewBackend opens the backend.
func NewBackend() *Backend { return &Backend{ref.New[float32](), MultiplyAdd} }

// Name tells this backend apart in histories and reports.
func (*Backend) Name() string { return "other" }

// MultiplyAdd is a*b + c rounded once, from float64: the product of two floats
// is exact there; the sum is not, so it is rounded to odd before the rounding to
// float32 (Boldo and Melquiond, 2008).
func MultiplyAdd(a, b, c float32) float32 {
	p, z := float64(float64(a)*float64(b)), float64(c)
	s := p + z
	v := s - p
	low := (p - (s - v)) + (z - v) // what the sum has lost
	if bits := math.Float64bits(s); low != 0 && low == low && bits&1 == 0 {
		if (low > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}

// MatMulNT implements kernels.Kernels: a chain of MultiplyAdd over each group of
// k, then the tree over groups. The shapes are checked as in every backend.
func (b *Backend) MatMulNT(c, x, y kernels.Tensor, groups []int) {
	kernels.CheckMatMulNT(c, x, y, groups)
	if groups == nil {
		groups = []int{0, x.Cols}
	}
	sums := make([]float32, len(groups)-1)
	for m := range c.Rows {
		for n := range c.Cols {
			for g := range sums {
				acc := float32(0)
				for k := groups[g]; k < groups[g+1]; k++ {
					acc = b.MultiplyAdd(at(x, m, k), at(y, n, k), acc)
				}
				sums[g] = acc
			}
			for d := 1; d < len(sums); d *= 2 {
				for i := 0; i+d < len(sums); i += 2 * d {
					sums[i] += sums[i+d]
				}
			}
			ref.Data[float32](kernels.Flat(c.Buf))[c.Off+m*c.Stride+n] = sums[0]
		}
	}
}

// at is element (i, j) of a tensor in the reference's memory.
func at(t kernels.Tensor, i, j int) float32 {
	return ref.Data[float32](kernels.Flat(t.Buf))[t.Off+i*t.Stride+j]
}
