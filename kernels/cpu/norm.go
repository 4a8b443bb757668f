package cpu

import (
	"runtime"

	"github.com/lockstep-ml/lockstep/kernels"
)

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
	c := b.newCall(rmsNormPart, pathRMSNorm, noPath)
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
func (ws *workspace) rowsOf(c *call, f routine, rows int, ps ...*float32) {
	copy(ws.vec.p[:], ps)
	ws.vec.count, ws.vec.stream = rows, c.stream
	ws.do(f, c.cols)
}

// normBlock is about how many elements RMSNormGrad takes at a time on several
// threads: its second pass finds them in a core's own cache.
const normBlock = 1 << 15

// normThreads is how many threads share RMSNormGrad at most: dw, a third of the
// work, is done by one at a time.
const normThreads = 4

// RMSNormGrad implements kernels.Kernels. One thread does all in one pass.
// Several take blocks of rows: each adds to dw in its turn, since rows run in
// order, and then writes dx, which may lie on dy, while the next one adds.
func (b *Backend) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if b.isa == nil || x.Cols == 0 {
		b.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
		return
	}
	kernels.CheckRMSNormGrad(dx, dw, dy, x, rstd, w, res)
	if x.Rows == 0 {
		return
	}
	c := b.newCall(normGradPart, pathRMSNormGrad, noPath)
	c.x = [8]view{viewOf(dx), viewOf(x), viewOf(dy), viewOf(w), viewOf(res), viewOf(rstd), viewOf(dw)}
	if 12*x.Len() >= streamFrom && x.Cols%16 == 0 {
		c.stream = streams(c.x[:5], 1)
	}
	c.rows, c.cols, c.perPart = x.Rows, x.Cols, x.Rows
	parts := 1
	if b.threads > 1 && x.Len() > soloElements {
		c.perPart = max(min(normBlock, x.Len()/8)/x.Cols, 1)
		parts = min(b.threads, normThreads, (c.rows+c.perPart-1)/c.perPart)
	}
	c.block.Store(0)
	c.turn.Store(0)
	b.dispatch(c, parts)
}

// normGradPart takes blocks of rows until none is left. Blocks are taken in
// order, so whoever has the turn is at work, and no thread waits for one that
// waits for it.
func normGradPart(c *call, ws *workspace, _ int) {
	if c.perPart == c.rows {
		c.normGrad(ws, 0, c.rows, true)
		return
	}
	for {
		turn := c.block.Add(1) - 1
		lo := int(turn) * c.perPart
		if lo >= c.rows {
			return
		}
		hi := min(lo+c.perPart, c.rows)
		for spins := 1; c.turn.Load() != turn; spins++ {
			if c.broken.Load() != nil {
				return // whose turn it is may be over without a word
			}
			if spins%64 == 0 {
				runtime.Gosched()
			}
		}
		c.normWeight(ws, lo, hi)
		c.turn.Add(1)
		c.normGrad(ws, lo, hi, false)
	}
}

// normWeight adds rows [lo, hi) to dw.
func (c *call) normWeight(ws *workspace, lo, hi int) {
	for n := rowsAtOnce(c.cols); lo < hi; lo += n {
		at := lo * c.cols
		ws.rowsOf(c, c.b.isa.normWeight, min(n, hi-lo), ptr(c.x[6].data, 0), ptr(c.x[2].data, at), ptr(c.x[1].data, at), ptr(c.x[5].data, lo))
	}
}

// normGrad writes rows [lo, hi) of dx, and adds them to dw where it is asked to.
func (c *call) normGrad(ws *workspace, lo, hi int, weight bool) {
	k, h, res := c.b.isa, c.cols, c.x[4].data
	f := k.normGrad
	switch {
	case res != nil && weight:
		f = k.normGradAddWeight
	case res != nil:
		f = k.normGradAdd
	case weight:
		f = k.normGradWeight
	}
	if res == nil {
		res = c.x[0].data // not read
	}
	ws.vec.s[0] = float32(h)
	for n := rowsAtOnce(h); lo < hi; lo += n {
		at := lo * h
		ws.rowsOf(c, f, min(n, hi-lo), ptr(c.x[0].data, at), ptr(c.x[1].data, at), ptr(c.x[2].data, at), ptr(c.x[3].data, 0),
			ptr(c.x[5].data, lo), ptr(res, at), ptr(c.x[6].data, 0))
	}
}
