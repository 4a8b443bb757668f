package shm

import (
	"math"
	"testing"
)

// A position that a peer says is taken exactly where it can be: not before one that it
// has said, nor further than a ring from where this side is.
func TestPositions(t *testing.T) {
	const freed, seen = 100 * lineBytes, 300 * lineBytes
	for _, far := range []uint64{0, RingBytes, math.MaxUint64 - 200*lineBytes + 1} { // the last one turns over on the way
		words := ringOf(make([]byte, 1024), nil)
		for _, x := range []struct {
			head  uint64
			there bool // something more than was seen
			wrong bool
		}{
			{seen - 1, false, true}, {freed, false, true}, {freed - 1, false, true}, {0, false, true},
			{seen, false, false}, {seen + 1, true, false}, {freed + RingBytes, true, false},
			{freed + RingBytes + 1, false, true}, {seen + RingBytes, false, true}, {seen + 1<<63, false, true},
		} {
			words.head.Store(far + x.head)
			r := reader{ring: words, at: far + seen, freed: far + freed, seen: far + seen}
			if there, err := r.look(far + seen + 1); there != x.there || (err != nil) != x.wrong {
				t.Errorf("written up to %d after %d, read up to %d: %v, %v", x.head, seen, freed, there, err)
			}
		}
		const least = RingBytes - (seen - freed) + 1 // than what is known to be free
		for _, x := range []struct {
			tail  uint64
			free  int
			wrong bool
		}{
			{freed - 1, 0, true}, {0, 0, true}, {seen + 1, 0, true}, {seen + RingBytes, 0, true}, {seen + 1<<63, 0, true},
			{freed, 0, false}, {freed + 1, least, false}, {freed + 2, least + 1, false}, {seen, RingBytes, false},
		} {
			words.tail.Store(far + x.tail)
			w := writer{ring: words, at: far + seen, freed: far + freed}
			if free, err := w.room(least); free != x.free || (err != nil) != x.wrong {
				t.Errorf("read up to %d after %d, written up to %d: %d bytes are free, want %d; %v", x.tail, freed, seen, free, x.free, err)
			}
		}
	}
}
