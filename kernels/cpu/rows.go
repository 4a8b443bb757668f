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

func rmsNormPart(c *call, ws *workspace, part int) {
	lo, hi := c.share(part)
	h := c.cols
	for i := lo; i < hi; i++ {
		y, x := ptr(c.x[0].data, i*h), ptr(c.x[2].data, i*h)
		s := ws.rowOf(c.b.isa.lanesDot, h, x, x)
		r := 1 / root(s/float32(h)+c.s[0])
		c.x[1].data[i] = r
		ws.vec.s[0] = r
		ws.streamRow(c.stream, c.b.isa.norm, h, y, x, ptr(c.x[3].data, 0), ptr(c.x[2].data, min(i+1, hi-1)*h))
	}
}

// streamRow is rowOf with a choice of streaming stores.
//
//go:noinline
func (ws *workspace) streamRow(stream uint64, f func(*byte), n int, ps ...*float32) {
	copy(ws.vec.p[:], ps)
	ws.vec.stream = stream
	ws.do(f, n)
}

// root is the square root; through float64 it is correctly rounded for float32.
func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// normBlock is about how many elements RMSNormGrad takes at a time on several
// threads: the second of its passes finds them in a cache.
const normBlock = 1 << 20

// RMSNormGrad implements kernels.Kernels. On several threads dw, whose rows run
// in order, is a pass of its own, shared by columns; it comes first, since dx
// may lie on dy.
func (b *Backend) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if b.isa == nil || x.Cols == 0 {
		b.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
		return
	}
	kernels.CheckRMSNormGrad(dx, dw, dy, x, rstd, w, res)
	shared := b.threads > 1 && x.Len() > soloElements && x.Cols > 64
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

// normGradPart does the rows of a part: dx, and dw where it is given.
func normGradPart(c *call, ws *workspace, part int) {
	s, h := c.b.isa, c.cols
	grad, res := s.normGradAdd, c.x[4].data
	if res == nil {
		grad, res = s.normGrad, c.x[0].data
	}
	sum, dw := s.normSumWeight, c.x[6].data
	if dw == nil {
		sum, dw = s.normSum, c.x[3].data
	}
	w := ptr(c.x[3].data, 0)
	lo, hi := c.share(part)
	for i := c.first + lo; i < c.first+hi; i++ {
		at, next := i*h, min(i+1, c.first+hi-1)*h
		dx, x, dy := ptr(c.x[0].data, at), ptr(c.x[1].data, at), ptr(c.x[2].data, at)
		ws.vec.s[0] = c.x[5].data[i]
		ws.vec.s[1] = ws.rowOf(sum, h, x, dy, w, ptr(dw, 0)) / float32(h)
		ws.streamRow(c.stream, grad, h, dx, x, dy, w, ptr(c.x[1].data, next), ptr(c.x[2].data, next), ptr(res, at))
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
