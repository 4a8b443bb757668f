package ref

import "github.com/lockstep-ml/lockstep/kernels"

// MatMulNT implements kernels.Kernels.
func (b *Backend[T]) MatMulNT(c, x, w kernels.Tensor, groups []int) {
	const name = "matmul nt"
	out, a, m := view[T](name, c), view[T](name, x), view[T](name, w)
	mustEqual(name, "rows of c", out.rows, a.rows)
	mustEqual(name, "columns of c", out.cols, m.rows)
	mustEqual(name, "columns of b", m.cols, a.cols)
	groups = checkGroups(name, groups, a.cols)
	if out.cols == 0 {
		return
	}
	s := b.scratch(stackRows(len(groups)-1) * out.cols)
	defer b.release(s)
	for i := range out.rows {
		tree, row := newSumTree(out.row(i), *s), a.row(i)
		for g, hi := range groups[1:] {
			lo := groups[g]
			dots(tree.next(), row[lo:hi], m.data[lo:], m.stride)
			tree.push()
		}
		tree.finish()
	}
}

// MatMulNN implements kernels.Kernels.
func (b *Backend[T]) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	const name = "matmul nn"
	out := view[T](name, c)
	ops, groups := checkTerms[T](name, out, terms)
	s := b.scratch(stackRows(groups) * out.cols)
	defer b.release(s)
	for i := range out.rows {
		tree := newSumTree(out.row(i), *s)
		for g := range groups {
			leaf := tree.next()
			clear(leaf)
			for _, op := range ops {
				for k := op.groups[g]; k < op.groups[g+1]; k++ {
					axpy(leaf, op.a.data[i*op.a.stride+k], op.b.row(k))
				}
			}
			tree.push()
		}
		tree.finish()
	}
}

// operands is a checked kernels.Term.
type operands[T Float] struct {
	a, b   matrix[T]
	groups []int
}

// checkTerms gives the operands and the number of groups; without terms every
// element is an empty chain, hence one group of no products.
func checkTerms[T Float](name string, out matrix[T], terms []kernels.Term) ([]operands[T], int) {
	ops, groups := make([]operands[T], len(terms)), 1
	for i, t := range terms {
		op := operands[T]{a: view[T](name, t.A), b: view[T](name, t.B)}
		mustEqual(name, "rows of a", op.a.rows, out.rows)
		mustEqual(name, "columns of b", op.b.cols, out.cols)
		mustEqual(name, "rows of b", op.b.rows, op.a.cols)
		op.groups = checkGroups(name, t.Groups, op.a.cols)
		if i == 0 {
			groups = len(op.groups) - 1
		}
		mustEqual(name, "number of groups", len(op.groups)-1, groups)
		ops[i] = op
	}
	return ops, groups
}

// MatMulTN implements kernels.Kernels.
func (b *Backend[T]) MatMulTN(c, x, y kernels.Tensor) {
	const name = "matmul tn"
	out, p, q := view[T](name, c), view[T](name, x), view[T](name, y)
	mustEqual(name, "columns of a", p.cols, out.rows)
	mustEqual(name, "columns of b", q.cols, out.cols)
	mustEqual(name, "rows of b", q.rows, p.rows)
	for i := range out.rows {
		acc := out.row(i)
		for k := range q.rows {
			axpy(acc, p.data[k*p.stride+i], q.row(k))
		}
	}
}
