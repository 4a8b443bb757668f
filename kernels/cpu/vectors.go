package cpu

import (
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// vectorArgs is the argument of a kernel over vectors; the generator knows the
// offsets of its fields.
type vectorArgs struct {
	n      int // elements
	p      [8]*float32
	s      [12]float32
	count  int    // heads of rope
	stream uint64 // store past the caches; outputs lie at multiples of 64 bytes
	out    float32
	_      float32
}

// do runs a kernel over n elements of the arrays and returns its result.
func (ws *workspace) do(f routine, n int) float32 {
	if ws.vec.stream != 0 && f.streaming != 0 {
		ws.marks.add(f.streaming)
	} else {
		ws.marks.add(f.number)
	}
	ws.vec.n = n
	f.f((*byte)(unsafe.Pointer(&ws.vec)))
	return ws.vec.out
}

// view is the rows of a tensor: row i starts at data[i*stride]. The last row may
// end before its stride does.
type view struct {
	data               []float32
	rows, cols, stride int
}

// viewOf is the memory of t, which has passed a Check function.
func viewOf(t kernels.Tensor) view {
	if t.Absent() {
		return view{}
	}
	return view{ref.Data[float32](kernels.Flat(t.Buf))[t.Off:], t.Rows, t.Cols, t.Stride}
}

// at points to element (i, j). It may point past the end where there are no
// elements, and is not followed then.
func (v *view) at(i, j int) *float32 { return ptr(v.data, i*v.stride+j) }

// ptr points to element i of x.
func ptr(x []float32, i int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(x)), 4*i))
}

// row is row i.
func (v *view) row(i int) []float32 {
	if v.cols == 0 {
		return nil
	}
	return v.data[i*v.stride : i*v.stride+v.cols]
}

// operands are the arguments of a call.
type operands struct {
	x       [8]view
	s       [12]float32
	f       routine
	n       int // elements or rows
	arrays  int
	chunk   int // of n per part
	stream  uint64
	first   int
	ids     []int32
	groups  []int
	tensors [2][]kernels.Tensor // of a reduction: destinations and sources
	place   kernels.Place
	hold    bool // the caller reads results before it drops the call

	rows, cols, perPart int // see share
	byColumns           bool

	product product
	heads   kernels.Heads
}

// chunk is how many elements one call of assembly takes: some microseconds.
const chunk = 1 << 14

// streamFrom is the number of bytes of all arrays from which outputs are stored
// past the caches: below it, the next kernel still finds them there.
const streamFrom = 32 << 20

// elementwise runs f over n elements, cut into chunks. The first outs tensors
// are outputs; shared is the path of several parts.
func (b *Backend) elementwise(shared path, f routine, s [12]float32, n, outs int, ts ...kernels.Tensor) {
	if n == 0 {
		return
	}
	c := b.newCall(elementwisePart, shared, noPath)
	c.f, c.s, c.n, c.arrays = f, s, n, len(ts)
	for i, t := range ts {
		c.x[i] = viewOf(t)
	}
	if 4*n*len(ts) >= streamFrom {
		c.stream = streams(c.x[:len(ts)], outs)
	}
	c.chunk = b.chunk(n, chunk)
	b.dispatch(c, (n+c.chunk-1)/c.chunk)
}

// chunk is the size of parts of n elements, a multiple of least: some for each
// thread, or all of it where the work is too small to share.
func (b *Backend) chunk(n, least int) int {
	if n <= least || b.threads == 1 {
		return max(n, 1)
	}
	return roundUp((n+8*b.threads-1)/(8*b.threads), least)
}

// streams decides on streaming stores to the first outs arrays: they must be
// aligned, and none of the others, whose lines are in the caches anyhow.
func streams(x []view, outs int) uint64 {
	for i := range outs {
		to := unsafe.SliceData(x[i].data)
		if uintptr(unsafe.Pointer(to))%64 != 0 {
			return 0
		}
		for _, in := range x[outs:] {
			if unsafe.SliceData(in.data) == to {
				return 0
			}
		}
	}
	return 1
}

func elementwisePart(c *call, ws *workspace, part int) {
	lo := part * c.chunk
	hi := min(lo+c.chunk, c.n)
	ws.vec.s, ws.vec.stream = c.s, c.stream
	for ; lo < hi; lo += chunk {
		ws.elements(c, lo, min(chunk, hi-lo))
	}
}

// elements is one call of assembly. It is a function of its own, with a frame,
// so that the scheduler can stop the goroutine between calls.
//
//go:noinline
func (ws *workspace) elements(c *call, lo, n int) {
	for i := range c.arrays {
		ws.vec.p[i] = ptr(c.x[i].data, lo)
	}
	ws.do(c.f, n)
}
