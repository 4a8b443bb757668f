//go:build cuda

package cuda

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
)

// TestSumsTogether: sums that are waited for together are those of the definition, of the
// elements as they were when each was asked for, however many there are; one wait serves as
// many as have room.
func TestSumsTogether(t *testing.T) {
	b := opened(t)
	for _, n := range []int{0, 1, 40, 1000} { // of the last, a third fill the words
		r := rand.New(rand.NewPCG(uint64(n), 5))
		w := newTwins(t, b, r, 5000)
		var hashes [2][]kernels.Digest
		var squares [2][]kernels.SquareSum
		var changed [2][]int
		for i := range w.both {
			hashes[i], squares[i], changed[i] = make([]kernels.Digest, n), make([]kernels.SquareSum, n), make([]int, n)
		}
		waits := b.Waits()
		for k := range n {
			changed[0][k], changed[1][k] = k, k // what is changed is added
			sumOf(r, w, k, hashes, squares, changed)
		}
		for i, be := range w.both {
			s, later := kernels.SumsOf(be)
			if later != (i == 0) {
				t.Fatalf("sums of %s: later %t", be.Name(), later)
			}
			s.Wait()
		}
		waited := b.Waits() - waits
		for k := range n {
			if hashes[0][k] != hashes[1][k] || squares[0][k] != squares[1][k] || changed[0][k] != changed[1][k] {
				t.Fatalf("%d sums: sum %d differs", n, k)
			}
		}
		if limit := uint64((n + 255) / 256); waited > limit || waited < min(limit, 2) {
			t.Errorf("%d sums: %d waits, want at most %d, and two where the words were filled", n, waited, limit)
		}
	}
}

// sumOf asks for sum k, and changes the elements it was of.
func sumOf(r *rand.Rand, w *twins, k int, hashes [2][]kernels.Digest, squares [2][]kernels.SquareSum, changed [2][]int) {
	rows, cols := 1+r.IntN(9), 1+r.IntN(200)
	x, old := viewIn(r, 5000, rows, cols), viewIn(r, 5000, rows, cols)
	dense := view{x.off, rows, cols, cols}
	old.stride = cols
	flat := view{off: x.off, rows: 1, cols: cols, stride: cols}
	place := kernels.Place{ID: r.Uint64(), First: r.Uint64N(1000), RowStride: r.Uint64N(300)}
	kind, odd := r.IntN(3), []float64{math.NaN(), math.Inf(-1), 0.5}[r.IntN(3)]
	i := 0
	w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
		s, _ := kernels.SumsOf(be)
		switch kind {
		case 0:
			s.Hash(&hashes[i][k], at(x), place)
		case 1:
			s.SumSquares(&squares[i][k], at(flat))
		default:
			s.HashChanged(&hashes[i][k], &changed[i][k], at(dense), at(old), place)
		}
		be.Fill(at(flat), odd)
		i++
	})
}

// TestSumsAtOnce: a sum that is asked for at once does not lose those that are awaited.
func TestSumsAtOnce(t *testing.T) {
	b, r := opened(t), rand.New(rand.NewPCG(6, 7))
	w := newTwins(t, b, r, 100)
	var later, now [2]kernels.Digest
	for i, be := range w.both {
		s, _ := kernels.SumsOf(be)
		x := kernels.Flat(w.bufs[i])
		s.Hash(&later[i], x, kernels.Place{ID: 1})
		be.Hash(&now[i], x, kernels.Place{ID: 2})
		s.Wait()
	}
	if later[0] != later[1] || now[0] != now[1] {
		t.Errorf("digests %v and %v, want %v and %v", later[0], now[0], later[1], now[1])
	}
}

// TestSumsInParts: tensors of more elements than one launch takes.
func TestSumsInParts(t *testing.T) {
	b := opened(t)
	b.sums.most = 100
	w := newTwins(t, b, rand.New(rand.NewPCG(22, 23)), 4000)
	var hashes, changes []kernels.Digest
	var squares []kernels.SquareSum
	var counts []int
	w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
		var h, c kernels.Digest
		var s kernels.SquareSum
		place := kernels.Place{ID: 3, First: 17, RowStride: 1000}
		be.Hash(&h, at(view{5, 3, 333, 400}), place)
		counts = append(counts, be.HashChanged(&c, at(view{0, 3, 333, 333}), at(view{2000, 3, 333, 333}), place))
		be.SumSquares(&s, at(view{1, 1, 3210, 3210}))
		hashes, changes, squares = append(hashes, h), append(changes, c), append(squares, s)
	})
	if hashes[0] != hashes[1] || changes[0] != changes[1] || counts[0] != counts[1] || squares[0] != squares[1] {
		t.Errorf("digests %v, %v, %d changed: want %v, %v, %d (squares equal: %t)", hashes[0], changes[0], counts[0], hashes[1], changes[1], counts[1], squares[0] == squares[1])
	}
}
