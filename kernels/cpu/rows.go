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
	c := b.newCall(addBiasPart, pathAddBiasRows, pathAddBiasColumns)
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
func (ws *workspace) rowOf(f routine, n int, ps ...*float32) float32 {
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
		b.elementwise(pathResidual, b.isa.add, [12]float32{}, dst.Len(), 1, dst, x, y)
		return
	}
	if dst.Len() == 0 {
		return
	}
	c := b.newCall(residualPart, pathResidualRows, pathResidualColumns)
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
	c := b.newCall(columnSumPart, noPath, pathColumnSum)
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
	c := b.newCall(ropePart, pathRope, noPath)
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
