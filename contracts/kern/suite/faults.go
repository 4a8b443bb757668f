package suite

import (
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
		return faulty{After: fault.After{Do: func(be kernels.Backend, k string, outputs ...kernels.Tensor) {
			if k == kernel {
				f(be, outputs)
			}
		}}}
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
		return faulty{After: fault.After{Do: func(be kernels.Backend, k string, outputs ...kernels.Tensor) {
			if k != kernel || outputs[0].Len() < sharedElements {
				return
			}
			if n++; n%3 == 0 {
				flip(be, outputs[1], 0, 0)
			}
		}}}
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

// lying is a backend whose tally has one routine more, with calls that say
// counts, given how often it was asked; where that is negative the routine is not
// listed.
type lying struct {
	kernels.Backend
	asked int
	says  func(asked int) int
}

// uncalled is the name of a routine that no backend has.
const uncalled = "a routine that nothing calls"

// Tally implements kernels.Tallier.
func (l *lying) Tally() []kernels.Routine {
	var out []kernels.Routine
	if t, ok := kernels.TallierOf(l.Backend); ok {
		out = t.Tally()
	}
	if n := l.says(l.asked); n >= 0 {
		out = append(out, kernels.Routine{Name: uncalled, Calls: uint64(n)})
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
