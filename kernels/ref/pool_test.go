package ref

import (
	"testing"
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
)

// shelf is a pool that has some of what is asked for.
type shelf struct{ taken, given [][]float32 }

func (s *shelf) Take(n int) []float32 {
	if n < 10 {
		return nil
	}
	s.taken = append(s.taken, make([]float32, n))
	return s.taken[len(s.taken)-1]
}

func (s *shelf) Give(x []float32) { s.given = append(s.given, x) }

// A backend allocates from its pool what that has, counts it like the rest, and gives it
// back once, whole.
func TestPool(t *testing.T) {
	s := &shelf{}
	b := NewIn(s)
	var bufs []kernels.Buffer
	for _, n := range []int{9, 10, 0, 1000} {
		buf, err := b.Alloc(n)
		if err != nil || buf.Len() != n {
			t.Fatalf("%d elements: %v, %v", n, buf, err)
		}
		bufs = append(bufs, buf)
	}
	if live, _ := b.Live(); live != 4*1019 || len(s.taken) != 2 {
		t.Errorf("%d bytes are in use, %d tensors of the pool", live, len(s.taken))
	}
	x, _ := b.Host(kernels.Flat(bufs[3]).Range(7, 9))
	if unsafe.SliceData(x) != &s.taken[1][7] {
		t.Error("a tensor of the pool lies elsewhere")
	}
	for range 2 {
		for _, buf := range bufs {
			b.Free(buf)
		}
	}
	if live, _ := b.Live(); live != 0 || len(s.given) != 2 || len(s.given[0]) != 10 || unsafe.SliceData(s.given[1]) != unsafe.SliceData(s.taken[1]) {
		t.Errorf("%d bytes are in use, %d tensors are given back", live, len(s.given))
	}
	if buf, err := NewIn(nil).Alloc(10); err != nil || buf.Len() != 10 {
		t.Errorf("without a pool: %v, %v", buf, err)
	}
}
