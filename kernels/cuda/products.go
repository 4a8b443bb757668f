//go:build cuda

package cuda

import "github.com/lockstep-ml/lockstep/kernels"

// shallow is the most groups whose tree the tiles keep but the one of single elements, as
// in tree.h.
const shallow = 15

// manyTiles is the number of large tiles from which on products are cut into them.
const manyTiles = 6

// tile is how a product is cut: the end of a kernel's name, and the size.
type tile struct {
	size string
	m, n int
}

// Sorts of products: those of one sort share a tile.
const (
	sortDeep = iota // with a tree that only single elements keep
	sortSmall
	sortLarge
)

// sortOf is the sort of an m x n product in groups.
func sortOf(m, n, groups int) int {
	switch {
	case groups > shallow:
		return sortDeep
	case m < 128 || n < 64:
		return sortSmall
	}
	return sortLarge
}

// tileFor chooses the tile for products of one sort, which are launched together. It
// changes no bit.
func tileFor(sort int, ps []product) tile {
	switch sort {
	case sortDeep:
		return tile{"_16x16", 16, 16}
	case sortSmall:
		return tile{"_32x32", 32, 32}
	}
	large, tiles := tile{"_128x128", 128, 128}, 0
	for _, p := range ps {
		if p.c.Cols < large.n {
			return tile{"_128x64", 128, 64}
		}
		tiles += large.count(p.c.Rows, p.c.Cols)
	}
	if tiles < manyTiles {
		return tile{"_128x64", 128, 64}
	}
	return large
}

// count is the number of tiles of an m x n product.
func (t tile) count(m, n int) int { return ceil(m, t.m) * ceil(n, t.n) }

// tiles launches a kernel with a block to each tile of an m x n product, of y matrices.
func (c call) tiles(t tile, m, n, y int) { c.launch(t.count(m, n), min(y, maxGridY), c.r.threads) }

// MatMulNT implements kernels.Kernels.
func (b *Backend) MatMulNT(c, x, y kernels.Tensor, groups []int) {
	kernels.CheckMatMulNT(c, x, y, groups)
	if c.Len() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.later("MatMulNT", c, x.Cols, kernels.Term{A: x, B: y, Groups: groups})
}

// MatMulNN implements kernels.Kernels.
func (b *Backend) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	kernels.CheckMatMulNN(c, terms)
	if c.Len() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.later("MatMulNN", c, 0, terms...)
}

// MatMulTN implements kernels.Kernels.
func (b *Backend) MatMulTN(c, x, y kernels.Tensor) {
	kernels.CheckMatMulTN(c, x, y)
	if c.Len() == 0 || x.Rows == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.later("MatMulTN", c, x.Rows, kernels.Term{A: x, B: y})
}
