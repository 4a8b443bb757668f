//go:build cuda

package cuda

import (
	"slices"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Embedding implements kernels.Kernels.
func (b *Backend) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	kernels.CheckEmbedding(x, table, tokens)
	if x.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	if at, ok := b.indices(tokens); ok {
		b.begin("embedding").tensors(x, table).words(at).ints(first, table.Rows, x.Rows, x.Cols).grid(x.Rows, x.Cols)
	}
}

// EmbeddingGrad implements kernels.Kernels. The positions are sorted by their row of the
// table here, so that each row is one chain.
func (b *Backend) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	kernels.CheckEmbeddingGrad(dtable, dx, tokens)
	rows, starts, positions := byRow(tokens, first, dtable.Rows)
	if dx.Len() == 0 || len(rows) == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	if !b.room(4*(len(rows)+len(starts)+len(positions)), 3) {
		return
	}
	list, start, at := b.list(int32s(rows)), b.list(int32s(starts)), b.list(int32s(positions))
	b.begin("embedding_grad").tensors(dtable, dx).words(list, start, at).ints(len(rows), dx.Cols).grid(len(rows), dx.Cols)
}

// byRow gives the rows of a table of n that tokens name, and where in positions, which are
// those of the tokens, ascending, those of each row begin and end.
func byRow(tokens []int32, first, n int) (rows, starts, positions []int32) {
	for i, token := range tokens {
		if v := int(token) - first; token >= 0 && v >= 0 && v < n {
			positions = append(positions, int32(i))
		}
	}
	slices.SortStableFunc(positions, func(i, j int32) int { return int(tokens[i]) - int(tokens[j]) })
	for i, at := range positions {
		if i == 0 || tokens[at] != tokens[positions[i-1]] {
			rows, starts = append(rows, int32(int(tokens[at])-first)), append(starts, int32(i))
		}
	}
	return rows, append(starts, int32(len(positions))), positions
}

// LogitsMax implements kernels.Kernels.
func (b *Backend) LogitsMax(max, target, z kernels.Tensor, targets []int32, first int) {
	kernels.CheckLogitsMax(max, target, z, targets)
	if z.Rows == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	if at, ok := b.indices(targets); ok {
		b.begin("logits_max").tensors(max, target, z).words(at).ints(first, z.Rows, z.Cols).warps(z.Rows)
	}
}

// LogitsExpSum implements kernels.Kernels.
func (b *Backend) LogitsExpSum(sum, z, max kernels.Tensor, groups []int) {
	kernels.CheckLogitsExpSum(sum, z, max, groups)
	if z.Rows == 0 {
		return
	}
	if groups == nil {
		groups = []int{0, z.Cols}
	}
	b.enter()
	defer b.mu.Unlock()
	bounds := int32s(groups)
	if b.room(len(bounds), 1) {
		b.begin("logits_exp_sum").tensors(sum, z, max).words(b.list(bounds)).ints(len(groups)-1, z.Rows, z.Cols).warps(z.Rows)
	}
}

// CrossEntropy implements kernels.Kernels.
func (b *Backend) CrossEntropy(nll, z, sum, max, target kernels.Tensor, targets []int32, first int, invN float64) {
	kernels.CheckCrossEntropy(nll, z, sum, max, target, targets)
	if z.Rows == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	at, ok := b.indices(targets)
	if !ok {
		return
	}
	b.begin("cross_entropy_nll").tensors(nll, sum, max, target).words(at).ints(z.Rows).each(z.Rows)
	if z.Cols > 0 {
		b.begin("cross_entropy_grad").tensors(z, sum).words(at).ints(first, z.Rows, z.Cols).floats(invN).grid(z.Rows, z.Cols)
	}
}
