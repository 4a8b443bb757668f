//go:build cuda

package cuda

import "github.com/lockstep-ml/lockstep/kernels"

// shallow is the most groups whose tree the tiles keep but the one of single elements, as
// in tree.h.
const shallow = 15

// manyTiles is the number of large tiles from which on a product is cut into them.
const manyTiles = 6

// tile is how a product is cut: the end of a kernel's name, and the size.
type tile struct {
	size string
	m, n int
}

// tileFor chooses the tile for an m x n product in groups. It changes no bit.
func tileFor(m, n, groups int) tile {
	large := tile{"_128x128", 128, 128}
	switch {
	case groups > shallow:
		return tile{"_16x16", 16, 16}
	case m < 128 || n < 64:
		return tile{"_32x32", 32, 32}
	case n < 128 || large.count(m, n) < manyTiles:
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
	bounds, n := uint64(0), kernels.GroupCount(groups)
	if n > 1 {
		list := int32s(groups)
		if !b.room(len(list), 1) {
			return
		}
		bounds = b.list(list)
	}
	t := tileFor(c.Rows, c.Cols, n)
	b.begin("product_nt"+t.size).rows(c).rows(x).rows(y).words(bounds).ints(n, c.Rows, c.Cols, x.Cols).tiles(t, c.Rows, c.Cols, 1)
}

// MatMulNN implements kernels.Kernels.
func (b *Backend) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	kernels.CheckMatMulNN(c, terms)
	if c.Len() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := kernels.GroupCount(terms[0].Groups)
	const words = 6 // of a term on the device
	if !b.room(len(terms)*(8*words+4*(n+1)), 1+len(terms)) {
		return
	}
	list := make([]uint64, 0, words*len(terms))
	for _, t := range terms {
		bounds := uint64(0)
		if n > 1 {
			bounds = b.list(int32s(t.Groups))
		}
		list = append(list, address(t.A), uint64(stride(t.A)), address(t.B), uint64(stride(t.B)), bounds, uint64(t.A.Cols))
	}
	t := tileFor(c.Rows, c.Cols, n)
	b.begin("product_nn"+t.size).rows(c).words(b.list(uint64s(list))).ints(len(terms), n, c.Rows, c.Cols).tiles(t, c.Rows, c.Cols, 1)
}

// MatMulTN implements kernels.Kernels.
func (b *Backend) MatMulTN(c, x, y kernels.Tensor) {
	kernels.CheckMatMulTN(c, x, y)
	if c.Len() == 0 || x.Rows == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := tileFor(c.Rows, c.Cols, 1)
	b.begin("product_tn"+t.size).rows(c).rows(x).rows(y).ints(c.Rows, c.Cols, x.Rows).tiles(t, c.Rows, c.Cols, 1)
}
