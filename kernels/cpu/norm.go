package cpu

import "github.com/lockstep-ml/lockstep/kernels"

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
	ws.vec.s = [12]float32{float32(c.cols), c.s[0], 1}
	for n := rowsAtOnce(c.cols); lo < hi; lo += n {
		at := lo * c.cols
		ws.rowsOf(c, c.b.isa.rmsNorm, min(n, hi-lo), ptr(c.x[0].data, at), ptr(c.x[2].data, at), ptr(c.x[3].data, 0), ptr(c.x[1].data, lo))
	}
}

// rowsAtOnce is how many rows one call of assembly takes: some ten microseconds.
func rowsAtOnce(cols int) int { return max(1<<16/cols, 1) }

// rowsOf runs a kernel over a number of rows. It is a function of its own, with
// a frame, so that the scheduler can stop the goroutine between calls.
//
//go:noinline
func (ws *workspace) rowsOf(c *call, f func(*byte), rows int, ps ...*float32) {
	copy(ws.vec.p[:], ps)
	ws.vec.count, ws.vec.stream = rows, c.stream
	ws.do(f, c.cols)
}

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

// normGradPart does the rows of a part: dx, and dw where it is given.
func normGradPart(c *call, ws *workspace, part int) {
	k, h := c.b.isa, c.cols
	res, dw := c.x[4].data, c.x[6].data
	f := k.normGrad
	switch {
	case res != nil && dw != nil:
		f = k.normGradAddWeight
	case res != nil:
		f = k.normGradAdd
	case dw != nil:
		f = k.normGradWeight
	}
	if res == nil {
		res = c.x[0].data // not read
	}
	ws.vec.s[0] = float32(h)
	lo, hi := c.share(part)
	for n := rowsAtOnce(h); lo < hi; lo += n {
		i := lo + c.first
		at := i * h
		ws.rowsOf(c, f, min(n, hi-lo), ptr(c.x[0].data, at), ptr(c.x[1].data, at), ptr(c.x[2].data, at), ptr(c.x[3].data, 0),
			ptr(c.x[5].data, i), ptr(res, at), ptr(dw, 0))
	}
}
