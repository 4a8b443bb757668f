package model

import (
	"strings"

	"github.com/lockstep-ml/lockstep/core/num"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Initial fills dst with the initial values of elements local (of this rank's
// part) of p: norm weights 1, matrices InitStd and biases InitBias times a
// normal number that is a function of (seed, name, element index of the logical
// tensor) alone, rounded once. So every shard builds itself.
func (c *Config) Initial(p *Param, local shard.Range, seed uint64, dst []float32) {
	std := c.InitStd
	switch {
	case strings.HasSuffix(p.Name, ".bias"):
		std = c.InitBias
	case !p.Decays:
		for i := range dst {
			dst[i] = 1
		}
		return
	}
	cols := p.C.Len()
	for i := range dst {
		e := local.Lo + i
		index := (p.R.Lo+e/cols)*p.Cols + p.C.Lo + e%cols
		dst[i] = float32(std * num.Normal(seed, p.ID, uint64(index)))
	}
}

// Places cuts elements local (of this rank's part) of p into rectangles of the
// logical tensor and calls f with each as a range of local elements seen as
// rows x cols at its place: at most a partial row, whole rows, a partial row.
func (p *Param) Places(local shard.Range, f func(r shard.Range, rows, cols int, at kernels.Place)) {
	cols := p.C.Len()
	for lo := local.Lo; lo < local.Hi; {
		row, col := lo/cols, lo%cols
		rows, width := 1, min(cols-col, local.Hi-lo)
		if col == 0 && width == cols {
			rows = (local.Hi - lo) / cols
		}
		n := rows * width
		f(shard.Range{Lo: lo, Hi: lo + n}, rows, width, kernels.Place{
			ID: p.ID, First: uint64((p.R.Lo+row)*p.Cols + p.C.Lo + col), RowStride: uint64(p.Cols)})
		lo += n
	}
}
