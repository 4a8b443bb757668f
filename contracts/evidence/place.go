package evidence

import (
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Groups lists the data-parallel groups: the world ranks that hold replicas, or
// shares, of the same model parts, one group per model-parallel place.
func (r *Run) Groups() [][]int { return r.Along(names.DP) }

// Along lists the groups of an axis, each in the order of the axis, by their
// first ranks. Along the pipeline's axis they are the pipelines, stage by stage.
func (r *Run) Along(axis names.Axis) [][]int {
	var out [][]int
	dims := r.Config.Plan.Dims()
	for rank := range r.Header.World {
		at := dims.Coord(rank)
		if axis == names.DP && at.DP == 0 || axis == names.PP && at.PP == 0 || axis == names.TP && at.TP == 0 {
			out = append(out, dims.Group(rank, axis))
		}
	}
	return out
}

// Layouts lists the layouts of a rank's model parts, as the plan has them.
func (r *Run) Layouts(rank int) []model.Layout {
	var out []model.Layout
	for _, part := range r.Config.Plan.Parts(r.Config.Model, r.At(rank)) {
		out = append(out, model.NewLayout(r.Config.Model, part))
	}
	return out
}

// IsBlock reports whether a unit of the model is a block.
func IsBlock(unit string) bool {
	return strings.HasPrefix(unit, strings.TrimSuffix(model.BlockUnit(0), "0"))
}

// Holders lists which ranks hold each unit of the model, ascending.
func (r *Run) Holders() map[string][]int {
	out := map[string][]int{}
	for rank := range r.Header.World {
		for _, l := range r.Layouts(rank) {
			for _, u := range l.Units {
				out[u.Name] = append(out[u.Name], rank)
			}
		}
	}
	return out
}

// Elements puts a whole tensor together from what its holders, as Held lists
// them, captured of it: step and what as in Digest. ok is false where elements
// are missing. Where several hold an element the first one's counts.
func (r *Run) Elements(held []Holding, step int, what string) (x []float32, ok bool) {
	if len(held) == 0 {
		return nil, false
	}
	p, captured := held[0].Param, 0
	for _, h := range held {
		for _, e := range r.captured[about{h.Rank, step, what, h.Param.Name, 0}] {
			captured += len(e.Data)
		}
	}
	if captured < p.Rows*p.Cols { // as many as the header says are made only where they are there
		return nil, false
	}
	x = make([]float32, p.Rows*p.Cols)
	have, missing := make([]bool, len(x)), len(x)
	for _, h := range held {
		for _, e := range r.captured[about{h.Rank, step, what, h.Param.Name, 0}] {
			local, fits := covers(h, e)
			if !fits {
				return nil, false
			}
			for i, at := range h.positions(local) {
				if !have[at] {
					x[at], have[at] = e.Data[i], true
					missing--
				}
			}
		}
	}
	return x, missing == 0
}

// covers is which elements of a holding an event captured; an event without a
// range captured all of them.
func covers(h Holding, e trace.Event) (local shard.Range, fits bool) {
	local = shard.Range{Lo: int(e.Lo) - h.Param.Off, Hi: int(e.Hi) - h.Param.Off}
	if e.Lo == 0 && e.Hi == 0 {
		local = shard.Range{Hi: h.Param.Len()}
	}
	return local, local.Lo >= 0 && local.Hi <= h.Param.Len() && local.Len() == len(e.Data)
}

// positions says where elements local of the holding, counted from the first of
// them, lie in the whole tensor.
func (h *Holding) positions(local shard.Range) []int {
	out := make([]int, 0, local.Len())
	h.Param.Places(local, func(_ shard.Range, rows, cols int, at kernels.Place) {
		for i := range rows {
			for j := range cols {
				out = append(out, int(at.First)+i*int(at.RowStride)+j)
			}
		}
	})
	return out
}

// Index is where element i of a holding lies in the whole tensor; -1 for -1.
func (h *Holding) Index(i int64) int64 {
	if i < 0 {
		return -1
	}
	return int64(h.positions(shard.Range{Lo: int(i), Hi: int(i) + 1})[0])
}

// Has reports whether a holding covers an element of the whole tensor.
func (h *Holding) Has(index int64) bool {
	row, col := int(index)/h.Param.Cols, int(index)%h.Param.Cols
	return row >= h.Param.R.Lo && row < h.Param.R.Hi && col >= h.Param.C.Lo && col < h.Param.C.Hi
}

// Slice is the part of ranges of the whole tensor that a holding covers, as
// ascending ranges of its own elements.
func (h *Holding) Slice(whole [][2]int64) [][2]int64 {
	p := &h.Param
	cols, width := int64(p.Cols), int64(p.C.Hi-p.C.Lo)
	if cols < 1 || width < 1 {
		return nil
	}
	var out [][2]int64
	for _, x := range Union(whole) {
		lo, hi := max(x[0], int64(p.R.Lo)*cols), min(x[1], int64(p.R.Hi)*cols)
		if width == cols && lo < hi { // rows of which nothing lies between
			out = append(out, [2]int64{lo - int64(p.R.Lo)*cols, hi - int64(p.R.Lo)*cols})
			continue
		}
		for row := lo / cols; row*cols < hi; row++ {
			from, to := max(lo, row*cols+int64(p.C.Lo)), min(hi, row*cols+int64(p.C.Hi))
			if own := (row-int64(p.R.Lo))*width - row*cols - int64(p.C.Lo); from < to {
				out = append(out, [2]int64{from + own, to + own})
			}
		}
	}
	return Union(out)
}

// Union is the ascending union of ranges: those that touch are one.
func Union(ranges [][2]int64) [][2]int64 {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	var out [][2]int64
	for _, x := range sorted {
		switch n := len(out); {
		case x[0] >= x[1]:
		case n > 0 && x[0] <= out[n-1][1]:
			out[n-1][1] = max(out[n-1][1], x[1])
		default:
			out = append(out, x)
		}
	}
	return out
}
