package ref

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// local is the row or column of a vocabulary slice that starts at first, and
// whether the slice of size n has it.
func local(token int32, first, n int) (int, bool) {
	i := int(token) - first
	return i, token >= 0 && i >= 0 && i < n
}

// Embedding implements kernels.Kernels.
func (b *Backend[T]) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	const name = "embedding"
	out, tab := rows[T](name, x), rows[T](name, table)
	mustEqual(name, "columns of x", out.cols, tab.cols)
	mustEqual(name, "number of tokens", len(tokens), out.rows)
	for i, token := range tokens {
		dst := out.row(i)
		if v, ok := local(token, first, tab.rows); ok {
			for j, e := range tab.row(v) {
				dst[j] = e + 0 // -0 becomes +0
			}
		} else {
			clear(dst)
		}
	}
}

// EmbeddingGrad implements kernels.Kernels.
func (b *Backend[T]) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	const name = "embedding grad"
	tab, in := rows[T](name, dtable), rows[T](name, dx)
	mustEqual(name, "columns of dx", in.cols, tab.cols)
	mustEqual(name, "number of tokens", len(tokens), in.rows)
	for i, token := range tokens {
		if v, ok := local(token, first, tab.rows); ok {
			addTo(tab.row(v), in.row(i))
		}
	}
}

// LogitsMax implements kernels.Kernels.
func (b *Backend[T]) LogitsMax(max, target, z kernels.Tensor, targets []int32, first int) {
	const name = "logits max"
	in := rows[T](name, z)
	mustEqual(name, "number of targets", len(targets), in.rows)
	m, hit := sized[T](name, max, in.rows), sized[T](name, target, in.rows)
	for i, y := range targets {
		row, top := in.row(i), T(math.Inf(-1))
		for _, x := range row {
			if x > top {
				top = x
			}
		}
		m[i], hit[i] = top, 0
		if v, ok := local(y, first, in.cols); ok {
			hit[i] = row[v] + 0
		}
	}
}

// LogitsExpSum implements kernels.Kernels.
func (b *Backend[T]) LogitsExpSum(sum, z, max kernels.Tensor, groups []int) {
	const name = "logits exp sum"
	in := rows[T](name, z)
	total, m := sized[T](name, sum, in.rows), sized[T](name, max, in.rows)
	groups = checkGroups(name, groups, in.cols)
	s := b.scratch(stackRows(len(groups) - 1))
	defer b.release(s)
	for i, top := range m {
		row := in.row(i)
		for j, x := range row {
			row[j] = exp(x - top)
		}
		tree := newSumTree(total[i:i+1], *s)
		for g, hi := range groups[1:] {
			tree.next()[0] = lanesSum(row[groups[g]:hi])
			tree.push()
		}
		tree.finish()
	}
}

// CrossEntropy implements kernels.Kernels.
func (b *Backend[T]) CrossEntropy(nll, z, sum, max, target kernels.Tensor, targets []int32, first int, invN float64) {
	const name = "cross entropy"
	in, f := rows[T](name, z), T(invN)
	mustEqual(name, "number of targets", len(targets), in.rows)
	loss, total := sized[T](name, nll, in.rows), sized[T](name, sum, in.rows)
	m, hit := sized[T](name, max, in.rows), sized[T](name, target, in.rows)
	for i, y := range targets {
		row := in.row(i)
		if y < 0 {
			loss[i] = 0
			clear(row)
			continue
		}
		loss[i] = (m[i] + log(total[i])) - hit[i]
		v, _ := local(y, first, in.cols)
		for j, e := range row {
			p := e / total[i]
			if j == v {
				p--
			}
			row[j] = p * f
		}
	}
}
