package suite

import (
	"math"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/kernels"
)

// with makes a fault of a faulty backend; make is called for each run.
func with(make func() faulty) fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend {
		f := make()
		f.Backend = be
		return &f
	})
}

// spoil changes what one kernel has set.
func spoil(kernel string, f func(be kernels.Backend, outputs []kernels.Tensor)) fault.Fault {
	return with(func() faulty {
		return faulty{spoil: func(be kernels.Backend, k string, outputs ...kernels.Tensor) {
			if k == kernel {
				f(be, outputs)
			}
		}}
	})
}

// lane flips the last bit of an element of a kernel's first output in every call
// whose output is large enough.
func lane(kernel string, rows, cols, row, col int) fault.Fault {
	return spoil(kernel, func(be kernels.Backend, outputs []kernels.Tensor) {
		if x := outputs[0]; x.Rows >= rows && x.Cols >= cols {
			flip(be, x, row, col)
		}
	})
}

// lastColumn clears the last column of a kernel's n-th output where vectors of
// eight leave elements over.
func lastColumn(kernel string, n int) fault.Fault {
	return spoil(kernel, func(be kernels.Backend, outputs []kernels.Tensor) {
		if x := outputs[n]; x.Cols > 8 && x.Cols%8 != 0 {
			be.Fill(x.RowRange(x.Rows-min(1, x.Rows), x.Rows).ColRange(x.Cols-1, x.Cols), 0)
		}
	})
}

// blockOfK is a length of chains that backends cut longer ones into.
const blockOfK = 512

// firstBlock lets a product end after the first block of a chain.
func firstBlock() fault.Fault {
	return with(func() faulty {
		return faulty{matMulNT: func(be kernels.Backend, c, a, b kernels.Tensor, groups []int) {
			if k := a.Cols; groups == nil && k > blockOfK && k == b.Cols {
				a, b = a.ColRange(0, blockOfK), b.ColRange(0, blockOfK)
			}
			be.MatMulNT(c, a, b, groups)
		}}
	})
}

// ungrouped makes one chain of what must be summed by groups.
func ungrouped() fault.Fault {
	return with(func() faulty {
		return faulty{matMulNT: func(be kernels.Backend, c, a, b kernels.Tensor, groups []int) {
			if len(groups) > 4 && groups[0] == 0 && groups[len(groups)-1] == a.Cols {
				groups = []int{0, a.Cols}
			}
			be.MatMulNT(c, a, b, groups)
		}}
	})
}

// unstrided reads the rows of A as if nothing lay between them.
func unstrided() fault.Fault {
	return with(func() faulty {
		return faulty{matMulNN: func(be kernels.Backend, c kernels.Tensor, terms []kernels.Term) {
			terms = append([]kernels.Term(nil), terms...)
			for i := range terms {
				if a := &terms[i].A; a.Stride > a.Cols {
					a.Stride = a.Cols
				}
			}
			be.MatMulNN(c, terms)
		}}
	})
}

// shared flips a bit of the last element of a kernel's first output in calls that
// are large enough for several threads.
func shared(kernel string, elements int) fault.Fault {
	return spoil(kernel, func(be kernels.Backend, outputs []kernels.Tensor) {
		if x := outputs[0]; x.Len() > elements {
			flip(be, x, x.Rows-1, x.Cols-1)
		}
	})
}

// floorOfRows leaves the last rows out of the gradient of a norm's weight where
// blocks of four do not cover them.
func floorOfRows() fault.Fault {
	return with(func() faulty {
		return faulty{rmsNormGrad: func(be kernels.Backend, dx, dw, dy, x, rstd, w, res kernels.Tensor) {
			n := x.Rows - x.Rows%4
			if n == 0 || n == x.Rows || dw.Len() != x.Cols || dy.Rows != x.Rows || rstd.Len() != x.Rows {
				be.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
				return
			}
			short, free := copied(be, dw)
			defer free()
			unused, freeUnused := copied(be, x.RowRange(0, n))
			defer freeUnused()
			be.RMSNormGrad(unused, short, dy.RowRange(0, n), x.RowRange(0, n), kernels.Tensor{Buf: rstd.Buf, Off: rstd.Off, Rows: 1, Cols: n, Stride: n}, w, kernels.Tensor{})
			be.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
			put(be, dw, get(be, short))
		}}
	})
}

// nowAndThen spoils a kernel's second output in every third call that is shared
// between threads, as a race does.
func nowAndThen(kernel string) fault.Fault {
	return with(func() faulty {
		n := 0
		return faulty{spoil: func(be kernels.Backend, k string, outputs ...kernels.Tensor) {
			if k != kernel || outputs[0].Len() < sharedElements {
				return
			}
			if n++; n%3 == 0 {
				flip(be, outputs[1], 0, 0)
			}
		}}
	})
}

// sharedElements is a size from which backends share a kernel between threads.
const sharedElements = 1 << 15

// inverseTail turns the last element of a head the wrong way in the inverse
// rotation where a vector does not cover the half head.
func inverseTail() fault.Fault {
	return with(func() faulty {
		return faulty{rope: func(be kernels.Backend, x, cos, sin kernels.Tensor, inverse bool) {
			be.Rope(x, cos, sin, inverse)
			if inverse && cos.Cols > 8 && cos.Cols%8 != 0 && x.Len() > 0 {
				change(be, x.RowRange(0, 1).ColRange(x.Cols-1, x.Cols), func(v float32) float32 { return -v })
			}
		}}
	})
}

// wholeTable looks tokens up as if the table began at the first one.
func wholeTable() fault.Fault {
	return with(func() faulty {
		return faulty{embedding: func(be kernels.Backend, x, table kernels.Tensor, tokens []int32, _ int) {
			be.Embedding(x, table, tokens, 0)
		}}
	})
}

// longSequences flips a bit of the last query's output where there are more
// tokens than the widest vector has elements.
func longSequences() fault.Fault {
	return spoil("Attention", func(be kernels.Backend, outputs []kernels.Tensor) {
		if o, p := outputs[0], outputs[1]; p.Cols > 64 && o.Len() > 0 {
			flip(be, o, o.Rows-1, o.Cols-1)
		}
	})
}

// oneKeyGroup sums the gradients of shared keys in one chain instead of a tree
// over the groups.
func oneKeyGroup() fault.Fault {
	return with(func() faulty {
		return faulty{attentionGrad: func(be kernels.Backend, dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
			h.KVGroups = min(1, h.KVGroups)
			be.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
		}}
	})
}

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

// inOrder adds the sources of a sum one after the other.
func inOrder() fault.Fault {
	return with(func() faulty {
		return faulty{reduce: func(be kernels.Backend, dst, src []kernels.Tensor, op kernels.Op) {
			for _, x := range src {
				if x.Absent() || op != kernels.Sum || len(src) < 4 {
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

// lying is a backend whose tally has one routine more, with calls that say
// counts, given how often it was asked; where that is negative the routine is not
// listed.
type lying struct {
	kernels.Backend
	asked int
	says  func(asked int) int
}

// Tally implements kernels.Tallier.
func (l *lying) Tally() []kernels.Routine {
	var out []kernels.Routine
	if t, ok := kernels.TallierOf(l.Backend); ok {
		out = t.Tally()
	}
	if n := l.says(l.asked); n >= 0 {
		out = append(out, kernels.Routine{Name: "a routine that nothing calls", Calls: uint64(n)})
	}
	l.asked++
	return out
}

// lies makes the tally of the first run of a case lie, and leaves the others out:
// what is said once is said.
func lies(says func(asked int) int) func(*suite.Case) {
	f := fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return &lying{Backend: be, says: says} })
	return func(c *suite.Case) {
		fault.Into(contract.Test, f)(c)
		c.Runs = map[contract.Role]suite.Run{contract.Test: c.Runs[contract.Test]}
	}
}
