package kernels

// Sums are digests and sums of squares of a backend that need not be there when they are
// asked for: where each would have to be waited for, one wait serves many. They are of the
// elements as they are at the call, whatever later kernels make of them. What a call adds to
// is not to be used before Wait has returned.
type Sums interface {
	// Hash is that of Kernels.
	Hash(d *Digest, x Tensor, at Place)
	// SumSquares is that of Kernels.
	SumSquares(acc *SquareSum, x Tensor)
	// HashChanged is that of Kernels; it adds to changed what that one returns.
	HashChanged(d *Digest, changed *int, x, old Tensor, at Place)
	// Wait has all sums be there. After a fault of the device, which Read and Sync show,
	// some may be left as they were.
	Wait()
}

// Batcher is what a Backend offers whose Sums are there later. A decorator hides it: it may
// change what the kernels do.
type Batcher interface{ Sums() Sums }

// SumsOf gives the Sums of a backend, and whether they are there after Wait only.
func SumsOf(b Backend) (s Sums, later bool) {
	if l, ok := b.(Batcher); ok {
		s = l.Sums()
		_, now := s.(sumsNow)
		return s, !now
	}
	return SumsNow(b), false
}

// SumsNow are Sums that the kernels of a backend give at each call.
func SumsNow(b Backend) Sums { return sumsNow{b} }

type sumsNow struct{ Backend }

// HashChanged implements Sums.
func (s sumsNow) HashChanged(d *Digest, changed *int, x, old Tensor, at Place) {
	*changed += s.Backend.HashChanged(d, x, old, at)
}

// Wait implements Sums.
func (sumsNow) Wait() {}
