package suite

import (
	"math"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/kernels"
)

// saturated takes the gate as open from 6 on.
func saturated() fault.Fault {
	return with(func() faulty {
		return faulty{swiGLU: func(be kernels.Backend, h, z, u kernels.Tensor) {
			zs, us := get(be, z), get(be, u)
			be.SwiGLU(h, z, u)
			hs := get(be, h)
			for i := range hs {
				if zs[i] > 6 && zs[i] < math.MaxFloat32 {
					hs[i] = zs[i] * us[i]
				}
			}
			put(be, h, hs)
		}}
	})
}

// constantMaximum subtracts 10 in place of each row's maximum.
func constantMaximum() fault.Fault {
	return with(func() faulty {
		return faulty{logitsExpSum: func(be kernels.Backend, sum, z, max kernels.Tensor, groups []int) {
			ten, free := copied(be, max)
			defer free()
			be.Fill(ten, 10)
			be.LogitsExpSum(sum, z, ten, groups)
		}}
	})
}

// flushed replaces subnormal results of a kernel by zero.
func flushed(kernel string) fault.Fault {
	return spoil(kernel, func(be kernels.Backend, outputs []kernels.Tensor) {
		for _, x := range outputs {
			change(be, x, func(v float32) float32 {
				if v > -0x1p-126 && v < 0x1p-126 {
					return float32(math.Copysign(0, float64(v)))
				}
				return v
			})
		}
	})
}

// overwritten copies one operand of Residual into the output before the other is
// read, which shows where the output is the other.
func overwritten() fault.Fault {
	return with(func() faulty {
		return faulty{residual: func(be kernels.Backend, dst, x, y, b kernels.Tensor) {
			if dst == y && x.Rows == y.Rows && x.Cols == y.Cols && x.Contiguous() {
				be.Copy(dst, x)
			}
			be.Residual(dst, x, y, b)
		}}
	})
}

// firstRow adds a bias to the first row alone where rows are strided.
func firstRow() fault.Fault {
	return with(func() faulty {
		return faulty{addBias: func(be kernels.Backend, y, b kernels.Tensor) {
			if y.Rows > 1 && y.Stride > y.Cols {
				y = y.RowRange(0, 1)
			}
			be.AddBias(y, b)
		}}
	})
}

// wholeVectors updates only as many elements as vectors of 16 cover.
func wholeVectors() fault.Fault {
	return with(func() faulty {
		return faulty{adamW: func(be kernels.Backend, w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
			cut := func(t kernels.Tensor) kernels.Tensor { return t.Range(0, t.Len()-t.Len()%16) }
			be.AdamW(cut(w), cut(m), cut(v), cut(g), p)
		}}
	})
}

// inOrder adds the sources of a sum one after the other where there are from so many
// to so many.
func inOrder(from, to int) fault.Fault {
	return with(func() faulty {
		return faulty{reduce: func(be kernels.Backend, dst, src []kernels.Tensor, op kernels.Op) {
			for _, x := range src {
				if x.Absent() || op != kernels.Sum || len(src) < from || len(src) > to {
					be.Reduce(dst, src, op)
					return
				}
			}
			sum, free := copied(be, src[0])
			defer free()
			for _, x := range src[1:] {
				be.Add(sum, sum, x)
			}
			be.Reduce(dst, []kernels.Tensor{sum}, op)
		}}
	})
}

// lostAddition adds only the first half of the squares where threads share them.
func lostAddition() fault.Fault {
	return with(func() faulty {
		return faulty{sumSquares: func(be kernels.Backend, acc *kernels.SquareSum, x kernels.Tensor) {
			if x.Len() > sharedElements {
				x = kernels.Tensor{Buf: x.Buf, Off: x.Off, Rows: 1, Cols: x.Len() / 2, Stride: x.Len() / 2}
			}
			be.SumSquares(acc, x)
		}}
	})
}

// rarelyLost loses one addition of hundreds where threads share squares, as a race
// does.
func rarelyLost() fault.Fault {
	return with(func() faulty {
		n := 0
		return faulty{sumSquares: func(be kernels.Backend, acc *kernels.SquareSum, x kernels.Tensor) {
			if x.Len() > sharedElements {
				if n++; n%300 == 0 {
					return
				}
			}
			be.SumSquares(acc, x)
		}}
	})
}

// narrowIndex counts elements in 32 bits.
func narrowIndex() fault.Fault {
	return with(func() faulty {
		return faulty{hash: func(be kernels.Backend, d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
			at.First &= math.MaxUint32
			be.Hash(d, x, at)
		}}
	})
}

// unequalZeros compares values in place of bits, so that -0 is +0.
func unequalZeros() fault.Fault {
	return with(func() faulty {
		return faulty{hashChanged: func(be kernels.Backend, d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) int {
			a, free := copied(be, x)
			defer free()
			b, freeB := copied(be, old)
			defer freeB()
			for _, t := range []kernels.Tensor{a, b} {
				change(be, t, func(v float32) float32 {
					if v == 0 {
						return 0
					}
					return v
				})
			}
			return be.HashChanged(d, a, b, at)
		}}
	})
}

// pastTheEnd stores one element too many where a vector of 16 is not full.
func pastTheEnd(kernel string) fault.Fault {
	return spoil(kernel, func(be kernels.Backend, outputs []kernels.Tensor) {
		x := outputs[0]
		if end := x.Off + x.Len(); x.Contiguous() && x.Len()%16 != 0 && end < x.Buf.Len() {
			be.Fill(kernels.Tensor{Buf: x.Buf, Off: end, Rows: 1, Cols: 1, Stride: 1}, 0)
		}
	})
}

// scratchInInput leaves the norm's first row scaled.
func scratchInInput() fault.Fault {
	return with(func() faulty {
		return faulty{rmsNorm: func(be kernels.Backend, y, rstd, x, w kernels.Tensor, eps float64) {
			be.RMSNorm(y, rstd, x, w, eps)
			if x.Len() > 0 {
				be.Scale(x.RowRange(0, 1), x.RowRange(0, 1), 2)
			}
		}}
	})
}

// dirty lends memory whose last element is not zero.
func dirty() fault.Fault {
	return with(func() faulty {
		return faulty{alloc: func(be kernels.Backend, n int) (kernels.Buffer, error) {
			buf, err := be.Alloc(n)
			if err == nil && n > 0 {
				be.Fill(kernels.Flat(buf).Range(n-1, n), 1)
			}
			return buf, err
		}}
	})
}

// lenient copies as many elements as both operands have.
func lenient() fault.Fault {
	return with(func() faulty {
		return faulty{copy: func(be kernels.Backend, dst, src kernels.Tensor) {
			if n := min(dst.Len(), src.Len()); dst.Len() != src.Len() {
				dst, src = dst.Range(0, n), src.Range(0, n)
			}
			be.Copy(dst, src)
		}}
	})
}
