package cpu

import (
	"math"
	"math/bits"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// local is the row or column of a vocabulary slice that starts at first, and
// whether the slice of size n has it.
func local(token int32, first, n int) (int, bool) {
	i := int(token) - first
	return i, token >= 0 && i >= 0 && i < n
}

// Embedding implements kernels.Kernels.
func (b *Backend) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	if b.isa == nil {
		b.Backend.Embedding(x, table, tokens, first)
		return
	}
	kernels.CheckEmbedding(x, table, tokens)
	if x.Len() == 0 {
		return
	}
	c := b.newCall(embeddingPart, pathEmbedding, noPath)
	c.x[0], c.x[1], c.ids, c.first = viewOf(x), viewOf(table), tokens, first
	c.parallelWholeRows(x.Rows, x.Cols)
}

func embeddingPart(c *call, ws *workspace, part int) {
	lo, hi := c.share(part)
	for i := lo; i < hi; i++ {
		v, ok := local(c.ids[i], c.first, c.x[1].rows)
		if !ok {
			clear(c.x[0].data[i*c.cols : (i+1)*c.cols])
			continue
		}
		ws.vec.s[0] = 0 // -0 becomes +0
		ws.rowOf(c.b.isa.addConst, c.cols, ptr(c.x[0].data, i*c.cols), ptr(c.x[1].data, v*c.cols))
	}
}

// EmbeddingGrad implements kernels.Kernels.
func (b *Backend) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	if b.isa == nil {
		b.Backend.EmbeddingGrad(dtable, dx, tokens, first)
		return
	}
	kernels.CheckEmbeddingGrad(dtable, dx, tokens)
	if dx.Len() == 0 {
		return
	}
	c := b.newCall(embeddingGradPart, noPath, pathEmbeddingGrad)
	c.x[0], c.x[1], c.ids, c.first = viewOf(dtable), viewOf(dx), tokens, first
	c.parallelColumns(dx.Rows, dx.Cols)
}

func embeddingGradPart(c *call, ws *workspace, part int) {
	j0, j1 := c.columns(part)
	for i, token := range c.ids {
		if v, ok := local(token, c.first, c.x[0].rows); ok {
			d := ptr(c.x[0].data, v*c.cols+j0)
			ws.rowOf(c.b.isa.add, j1-j0, d, d, ptr(c.x[1].data, i*c.cols+j0))
		}
	}
}

// LogitsMax implements kernels.Kernels.
func (b *Backend) LogitsMax(max, target, z kernels.Tensor, targets []int32, first int) {
	if b.isa == nil {
		b.Backend.LogitsMax(max, target, z, targets, first)
		return
	}
	kernels.CheckLogitsMax(max, target, z, targets)
	if z.Rows == 0 {
		return
	}
	c := b.newCall(logitsMaxPart, pathLogitsMax, noPath)
	c.x[0], c.x[1], c.x[2], c.ids, c.first = viewOf(z), viewOf(max), viewOf(target), targets, first
	c.parallelWholeRows(z.Rows, z.Cols)
}

func logitsMaxPart(c *call, ws *workspace, part int) {
	lo, hi := c.share(part)
	for i := lo; i < hi; i++ {
		row := c.x[0].data[i*c.cols : (i+1)*c.cols]
		c.x[1].data[i] = ws.maximum(c.b.isa, row)
		c.x[2].data[i] = 0
		if v, ok := local(c.ids[i], c.first, c.cols); ok {
			c.x[2].data[i] = row[v] + 0
		}
	}
}

// maximum is the first maximum of x in order: of a zero the sign matters.
func (ws *workspace) maximum(s *isa, x []float32) float32 {
	m := float32(math.Inf(-1))
	for lo := 0; lo < len(x); lo += chunk {
		m = max(m, ws.rowOf(s.rowMax, min(chunk, len(x)-lo), ptr(x, lo)))
	}
	if m != 0 {
		return m
	}
	for _, v := range x {
		if v == 0 {
			return v
		}
	}
	return m
}

// LogitsExpSum implements kernels.Kernels.
func (b *Backend) LogitsExpSum(sum, z, max kernels.Tensor, groups []int) {
	if b.isa == nil || kernels.GroupCount(groups) > maxGroups {
		b.Backend.LogitsExpSum(sum, z, max, groups)
		return
	}
	kernels.CheckLogitsExpSum(sum, z, max, groups)
	if z.Rows == 0 {
		return
	}
	c := b.newCall(logitsExpSumPart, pathLogitsExpSum, noPath)
	c.x[0], c.x[1], c.x[2], c.groups = viewOf(z), viewOf(sum), viewOf(max), groups
	c.parallelWholeRows(z.Rows, z.Cols)
}

func logitsExpSumPart(c *call, ws *workspace, part int) {
	lo, hi := c.share(part)
	n := kernels.GroupCount(c.groups)
	for i := lo; i < hi; i++ {
		var stack [maxMerges + 2]float32
		top := 0
		for g := range n {
			j0, j1 := 0, c.cols
			if c.groups != nil {
				j0, j1 = c.groups[g], c.groups[g+1]
			}
			z := ptr(c.x[0].data, i*c.cols+min(j0, max(c.cols-1, 0)))
			ws.vec.s[0] = c.x[2].data[i]
			stack[top] = ws.rowOf(c.b.isa.expSum, j1-j0, z, z)
			top++
			for m := bits.TrailingZeros(uint(g + 1)); m > 0; m-- {
				top--
				stack[top-1] += stack[top]
			}
		}
		for ; top > 1; top-- {
			stack[top-2] += stack[top-1]
		}
		c.x[1].data[i] = stack[0]
	}
}

// CrossEntropy implements kernels.Kernels.
func (b *Backend) CrossEntropy(nll, z, sum, max, target kernels.Tensor, targets []int32, first int, invN float64) {
	if b.isa == nil {
		b.Backend.CrossEntropy(nll, z, sum, max, target, targets, first, invN)
		return
	}
	kernels.CheckCrossEntropy(nll, z, sum, max, target, targets)
	if z.Rows == 0 {
		return
	}
	c := b.newCall(crossEntropyPart, pathCrossEntropy, noPath)
	c.x = [8]view{viewOf(z), viewOf(nll), viewOf(sum), viewOf(max), viewOf(target)}
	c.ids, c.first, c.s[0] = targets, first, float32(invN)
	c.parallelWholeRows(z.Rows, z.Cols)
}

func crossEntropyPart(c *call, ws *workspace, part int) {
	lo, hi := c.share(part)
	for i := lo; i < hi; i++ {
		row := c.x[0].data[i*c.cols : (i+1)*c.cols]
		if c.ids[i] < 0 {
			c.x[1].data[i] = 0
			clear(row)
			continue
		}
		total := c.x[2].data[i]
		c.x[1].data[i] = (c.x[3].data[i] + ref.Log32(total)) - c.x[4].data[i]
		v, ok := local(c.ids[i], c.first, c.cols)
		var hit float32
		if ok {
			hit = (row[v]/total - 1) * c.s[0]
		}
		ws.vec.s[0], ws.vec.s[1] = total, c.s[0]
		for j := 0; j < c.cols; j += chunk {
			ws.rowOf(c.b.isa.divideScale, min(chunk, c.cols-j), ptr(row, j))
		}
		if ok {
			row[v] = hit
		}
	}
}
