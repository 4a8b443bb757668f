//go:build cuda

package cuda

import (
	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Digests and sums of squares are integers that kernels add up on the device. Each has
// words of its own there, so that many are brought to the host by one copy, and waited for
// together.

// bins is how many sums sum_squares makes: of each exponent, and of what is not finite.
const bins = 256

// mostSummed is how many elements a kernel of this file takes: so many squares of one
// exponent fit its sums, and their indices in 32 bits.
const mostSummed = 1 << 30

// sumsWords is how many words sums have on the device: those of 256 sums of squares. When
// all are taken they are waited for.
const sumsWords = 256 * 2 * bins

// awaited are the words of one launch, and what they are to be added to.
type awaited struct {
	at, words int
	squares   *kernels.SquareSum
	digest    *kernels.Digest
	changed   *int // of HashChanged, whose third word counts
}

// ledger holds the words, which are zero where nothing is awaited.
type ledger struct {
	dev     *gpu.Buffer
	host    *gpu.Pinned
	used    int
	most    int // elements of a launch
	awaited []awaited
}

func (l *ledger) open(d *gpu.Device, s *gpu.Stream) (err error) {
	l.most = mostSummed
	if l.dev, err = d.Alloc(8 * sumsWords); err != nil {
		return err
	}
	if l.host, err = d.AllocPinned(8 * sumsWords); err != nil {
		return err
	}
	return s.Fill(l.dev, 0, 0, 8*sumsWords)
}

func (l *ledger) close() error {
	var errs []error
	if l.dev != nil {
		errs = append(errs, l.dev.Free())
	}
	if l.host != nil {
		errs = append(errs, l.host.Free())
	}
	*l = ledger{}
	return gpu.Join(errs...)
}

// await takes words for a launch and gives their address.
func (b *Backend) await(a awaited) uint64 {
	l := &b.sums
	if l.used+a.words > sumsWords {
		b.settle()
	}
	a.at = l.used
	l.used += a.words
	l.awaited = append(l.awaited, a)
	return l.dev.Address() + 8*uint64(a.at)
}

// settle waits for all that is awaited and adds it up. After a fault nothing is added.
func (b *Backend) settle() {
	l := &b.sums
	if len(l.awaited) == 0 {
		return
	}
	b.note(b.stream.DownloadPinned(l.host, 0, l.dev, 0, 8*l.used))
	b.note(b.stream.Fill(l.dev, 0, 0, 8*l.used))
	if b.sync() == nil {
		words := gpu.As[uint64](l.host.Bytes())
		for _, a := range l.awaited {
			a.add(words[a.at : a.at+a.words])
		}
	}
	clear(l.awaited)
	l.awaited, l.used = l.awaited[:0], 0
}

// add adds words to what they are for.
func (a *awaited) add(s []uint64) {
	switch {
	case a.squares != nil:
		addSquares(a.squares, s)
	case a.changed != nil:
		a.digest.Add(kernels.Digest{A: s[0], B: s[1]})
		*a.changed += int(s[2])
	default:
		a.digest.Add(kernels.Digest{A: s[0], B: s[1], NonFinite: s[2]})
	}
}

// addSquares adds the sums that sum_squares has made.
func addSquares(acc *kernels.SquareSum, s []uint64) {
	const special = bins - 1
	for e := range special {
		low, high := s[2*e], s[2*e+1]
		if low|high == 0 {
			continue
		}
		// (high*2^32 + low) * 2^(2e-2): mantissas are in units of 2^(max(e,1)-150)
		acc.AddScaled(0, low, 2*max(e, 1)-2)
		acc.AddScaled(high>>32, high<<32, 2*max(e, 1)-2)
	}
	acc[kernels.SquareInf] += s[2*special]
	acc[kernels.SquareNaN] += s[2*special+1]
}

// squares launches what an exact sum of squares is made of.
func (b *Backend) squares(acc *kernels.SquareSum, x kernels.Tensor) {
	const block = 16384 // SQUARES of digest.cu
	for at, n := 0, x.Len(); at < n; at += b.sums.most {
		part := x.Range(at, min(n, at+b.sums.most))
		out := b.await(awaited{words: 2 * bins, squares: acc})
		c := b.begin("sum_squares")
		c.words(out).tensors(part).words(uint64(part.Len())).launch(ceil(part.Len(), block), 1, c.r.threads)
	}
}

// hashBlocks bounds the blocks of a digest: each adds to the same three words.
const hashBlocks = 4096

// digest launches a kernel that gives two sums and a count over the elements of tensors of
// one shape, whose place is at.
func (b *Backend) digest(kernel string, into awaited, at kernels.Place, ts ...kernels.Tensor) {
	x := ts[0]
	if x.Len() == 0 {
		return
	}
	flat := x.Rows > 1 && at.RowStride == uint64(x.Cols)
	for _, t := range ts {
		flat = flat && t.Contiguous()
	}
	if flat {
		for i, t := range ts {
			ts[i] = t.As(1, t.Len())
		}
		x = ts[0]
	}
	into.words = 3
	for lo := 0; lo < x.Cols; lo += b.sums.most {
		cols := min(x.Cols-lo, b.sums.most)
		out := b.await(into)
		c := b.begin(kernel).words(out)
		for _, t := range ts {
			c.rows(t.ColRange(lo, lo+cols))
		}
		wide := min(ceil(cols, each*c.r.threads), hashBlocks)
		c.ints(x.Rows, cols).words(at.ID, at.First+uint64(lo), at.RowStride)
		c.launch(wide, min(x.Rows, max(hashBlocks/wide, 1)), c.r.threads)
	}
}

// SumSquares implements kernels.Kernels.
func (b *Backend) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	sumsLater{b}.SumSquares(acc, x)
	sumsLater{b}.Wait()
}

// Hash implements kernels.Kernels.
func (b *Backend) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	sumsLater{b}.Hash(d, x, at)
	sumsLater{b}.Wait()
}

// HashChanged implements kernels.Kernels.
func (b *Backend) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) (changed int) {
	sumsLater{b}.HashChanged(d, &changed, x, old, at)
	sumsLater{b}.Wait()
	return changed
}

// sumsLater are the sums of a backend that are there after Wait. All that are awaited share it.
type sumsLater struct{ b *Backend }

// Sums implements kernels.Batcher.
func (b *Backend) Sums() kernels.Sums { return sumsLater{b} }

// SumSquares implements kernels.Sums.
func (l sumsLater) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	kernels.CheckSumSquares(x)
	l.b.enter()
	defer l.b.mu.Unlock()
	l.b.squares(acc, x)
}

// Hash implements kernels.Sums.
func (l sumsLater) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	kernels.CheckHash(x)
	l.b.enter()
	defer l.b.mu.Unlock()
	l.b.digest("hash", awaited{digest: d}, at, x)
}

// HashChanged implements kernels.Sums.
func (l sumsLater) HashChanged(d *kernels.Digest, changed *int, x, old kernels.Tensor, at kernels.Place) {
	kernels.CheckHashChanged(x, old)
	l.b.enter()
	defer l.b.mu.Unlock()
	l.b.digest("hash_changed", awaited{digest: d, changed: changed}, at, x, old)
}

// Wait implements kernels.Sums.
func (l sumsLater) Wait() {
	l.b.enter()
	defer l.b.mu.Unlock()
	l.b.settle()
}
