package cpu

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// AddBias implements kernels.Kernels.
func (b *Backend) AddBias(y, bias kernels.Tensor) {
	if b.isa == nil {
		b.Backend.AddBias(y, bias)
		return
	}
	kernels.CheckAddBias(y, bias)
	if y.Len() == 0 {
		return
	}
	c := b.newCall(addBiasPart)
	c.x[0], c.x[1] = viewOf(y), viewOf(bias)
	c.parallelRows(y.Rows, y.Cols)
}

func addBiasPart(c *call, ws *workspace, part int) {
	lo, hi := c.share(part)
	j0, j1 := c.columns(part)
	for i := lo; i < hi; i++ {
		y := c.x[0].at(i, j0)
		ws.rowOf(c.b.isa.add, j1-j0, y, y, ptr(c.x[1].data, j0))
	}
}

// rowOf runs a kernel over part of a row. It is a function of its own, with a
// frame, so that the scheduler can stop the goroutine between calls.
//
//go:noinline
func (ws *workspace) rowOf(f func(*byte), n int, ps ...*float32) float32 {
	copy(ws.vec.p[:], ps)
	ws.vec.stream = 0
	return ws.do(f, n)
}

// Residual implements kernels.Kernels.
func (b *Backend) Residual(dst, x, y, bias kernels.Tensor) {
	if b.isa == nil {
		b.Backend.Residual(dst, x, y, bias)
		return
	}
	kernels.CheckResidual(dst, x, y, bias)
	if bias.Absent() {
		b.elementwise(b.isa.add, [12]float32{}, dst.Len(), 1, dst, x, y)
		return
	}
	if dst.Len() == 0 {
		return
	}
	c := b.newCall(residualPart)
	c.x[0], c.x[1], c.x[2], c.x[3] = viewOf(dst), viewOf(x), viewOf(y), viewOf(bias)
	c.parallelRows(dst.Rows, dst.Cols)
}

func residualPart(c *call, ws *workspace, part int) {
	lo, hi := c.share(part)
	j0, j1 := c.columns(part)
	for i := lo; i < hi; i++ {
		at := i*c.cols + j0
		ws.rowOf(c.b.isa.residual, j1-j0, ptr(c.x[0].data, at), ptr(c.x[1].data, at), ptr(c.x[2].data, at), ptr(c.x[3].data, j0))
	}
}

// ColumnSum implements kernels.Kernels.
func (b *Backend) ColumnSum(dst, x kernels.Tensor) {
	if b.isa == nil {
		b.Backend.ColumnSum(dst, x)
		return
	}
	kernels.CheckColumnSum(dst, x)
	if x.Len() == 0 {
		return
	}
	c := b.newCall(columnSumPart)
	c.x[0], c.x[1] = viewOf(dst), viewOf(x)
	c.parallelColumns(x.Rows, x.Cols)
}

func columnSumPart(c *call, ws *workspace, part int) {
	j0, j1 := c.columns(part)
	d := ptr(c.x[0].data, j0)
	for i := range c.rows {
		ws.rowOf(c.b.isa.add, j1-j0, d, d, c.x[1].at(i, j0))
	}
}

// RMSNorm implements kernels.Kernels.
func (b *Backend) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	if b.isa == nil || x.Cols == 0 {
		b.Backend.RMSNorm(y, rstd, x, w, eps)
		return
	}
	kernels.CheckRMSNorm(y, rstd, x, w)
	if x.Rows == 0 {
		return
	}
	c := b.newCall(rmsNormPart)
	c.x[0], c.x[1], c.x[2], c.x[3] = viewOf(y), viewOf(rstd), viewOf(x), viewOf(w)
	c.s[0] = float32(eps)
	if 8*x.Len() >= streamFrom && x.Cols%16 == 0 {
		c.stream = streams([]view{c.x[0], c.x[2]}, 1)
	}
	c.parallelWholeRows(x.Rows, x.Cols)
}

// rmsNormPart writes each row together with the sum of the next, so that the
// memory reads while it writes.
func rmsNormPart(c *call, ws *workspace, part int) {
	k, h := c.b.isa, c.cols
	lo, hi := c.share(part)
	x, w := ptr(c.x[2].data, lo*h), ptr(c.x[3].data, 0)
	s := ws.rowOf(k.lanesDot, h, x, x)
	for i := lo; i < hi; i++ {
		r := 1 / root(s/float32(h)+c.s[0])
		c.x[1].data[i] = r
		ws.vec.s[0] = r
		y, x := ptr(c.x[0].data, i*h), ptr(c.x[2].data, i*h)
		if i+1 == hi {
			ws.streamRow(c.stream, k.norm, h, y, x, w)
			return
		}
		s = ws.streamRow(c.stream, k.normNext, h, y, x, w, ptr(c.x[2].data, (i+1)*h))
	}
}

// streamRow is rowOf with a choice of streaming stores.
//
//go:noinline
func (ws *workspace) streamRow(stream uint64, f func(*byte), n int, ps ...*float32) float32 {
	copy(ws.vec.p[:], ps)
	ws.vec.stream = stream
	return ws.do(f, n)
}

// root is the square root; through float64 it is correctly rounded for float32.
func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// normBlock is about how many elements RMSNormGrad takes at a time on several
// threads: the second of its passes finds them in a cache.
const normBlock = 1 << 20

// RMSNormGrad implements kernels.Kernels. On many threads dw, whose rows run in
// order, is a pass of its own, shared by columns; it comes first, since dx may
// lie on dy. Two threads would gain less than that pass costs.
func (b *Backend) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if b.isa == nil || x.Cols == 0 {
		b.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
		return
	}
	kernels.CheckRMSNormGrad(dx, dw, dy, x, rstd, w, res)
	shared := b.threads > 2 && x.Len() > soloElements && x.Cols > 64
	rows := x.Rows
	if shared {
		rows = max(normBlock/x.Cols, 4*b.threads)
	}
	for lo := 0; lo < x.Rows; lo += rows {
		n := min(rows, x.Rows-lo)
		if shared {
			c := b.newCall(normWeightPart)
			c.x = [8]view{viewOf(dw), viewOf(dy), viewOf(x), viewOf(rstd)}
			c.first = lo
			c.parallelColumns(n, x.Cols)
		}
		c := b.newCall(normGradPart)
		c.x = [8]view{viewOf(dx), viewOf(x), viewOf(dy), viewOf(w), viewOf(res), viewOf(rstd)}
		if 12*x.Len() >= streamFrom && x.Cols%16 == 0 {
			c.stream = streams(c.x[:5], 1)
		}
		if c.first = lo; shared {
			c.parallelWholeRows(n, x.Cols)
			continue
		}
		c.x[6] = viewOf(dw)
		c.rows, c.cols, c.perPart = n, x.Cols, n
		b.dispatch(c, 1)
	}
}

func normWeightPart(c *call, ws *workspace, part int) {
	j0, j1 := c.columns(part)
	for i := c.first; i < c.first+c.rows; i++ {
		ws.vec.s[0] = c.x[3].data[i]
		at := i*c.cols + j0
		ws.rowOf(c.b.isa.normWeight, j1-j0, ptr(c.x[0].data, j0), ptr(c.x[1].data, at), ptr(c.x[2].data, at))
	}
}

// normGradPart does the rows of a part: dx, and dw where it is given. Each row
// is written together with the sums of the next.
func normGradPart(c *call, ws *workspace, part int) {
	k, h := c.b.isa, c.cols
	res, dw := c.x[4].data, c.x[6].data
	first, next, last := k.normSum, k.normGradNext, k.normGrad
	switch {
	case res != nil && dw != nil:
		first, next, last = k.normSumWeight, k.normGradAddNextWeight, k.normGradAdd
	case res != nil:
		next, last = k.normGradAddNext, k.normGradAdd
	case dw != nil:
		first, next = k.normSumWeight, k.normGradNextWeight
	}
	if res == nil {
		res = c.x[0].data // not read
	}
	rstd, w, gw := c.x[5].data, ptr(c.x[3].data, 0), ptr(dw, 0)
	at := func(x []float32, i int) *float32 { return ptr(x, i*h) }
	lo, hi := c.share(part)
	lo, hi = lo+c.first, hi+c.first
	dx, x, dy := c.x[0].data, c.x[1].data, c.x[2].data
	ws.vec.s[0] = rstd[lo]
	sum := ws.rowOf(first, h, at(x, lo), at(dy, lo), w, gw)
	for i := lo; i < hi; i++ {
		ws.vec.s[0], ws.vec.s[1] = rstd[i], sum/float32(h)
		if i+1 == hi {
			ws.streamRow(c.stream, last, h, at(dx, i), at(x, i), at(dy, i), w, at(res, i))
			return
		}
		ws.vec.s[2] = rstd[i+1]
		sum = ws.streamRow(c.stream, next, h, at(dx, i), at(x, i), at(dy, i), w, at(res, i), at(x, i+1), at(dy, i+1), gw)
	}
}

// Rope implements kernels.Kernels.
func (b *Backend) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	if b.isa == nil {
		b.Backend.Rope(x, cos, sin, inverse)
		return
	}
	kernels.CheckRope(x, cos, sin)
	if x.Len() == 0 {
		return
	}
	c := b.newCall(ropePart)
	c.x[0], c.x[1], c.x[2] = viewOf(x), viewOf(cos), viewOf(sin)
	if inverse {
		c.s[0] = math.Float32frombits(1 << 31)
	}
	c.parallelWholeRows(x.Rows, x.Cols)
}

func ropePart(c *call, ws *workspace, part int) {
	lo, hi := c.share(part)
	half := c.x[1].cols
	ws.vec.s[0] = c.s[0]
	ws.vec.count = c.cols / (2 * half)
	for i := lo; i < hi; i++ {
		at, table := i*c.cols, i%c.x[1].rows*half
		ws.rowOf(c.b.isa.rope, half, ptr(c.x[0].data, at), ptr(c.x[0].data, at+half), ptr(c.x[1].data, table), ptr(c.x[2].data, table))
	}
}
