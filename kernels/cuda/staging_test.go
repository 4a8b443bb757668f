//go:build cuda

package cuda

import (
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
)

// TestStaging: memory for staging is pinned, zeroed and of the host, and whoever frees it
// gives it back; kernels on it panic then.
func TestStaging(t *testing.T) {
	b := opened(t)
	host := b.Staging()
	s, ok := host.(*staging)
	if !ok {
		t.Fatalf("staging is %T", host)
	}
	const n = 1000
	for range 2 {
		buf, err := host.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		if s.pinned[buf] == nil {
			t.Error("memory for staging is not pinned")
		}
		x, ok := host.Host(kernels.Flat(buf))
		if !ok || len(x) != n {
			t.Fatalf("%d elements, %t: want %d of the host", len(x), ok, n)
		}
		if slices.ContainsFunc(x, func(v float32) bool { return v != 0 }) {
			t.Error("memory for staging is not zeroed")
		}
		throughDevice(t, b, x)
		host.Scale(kernels.Flat(buf), kernels.Flat(buf), 2)
		if x[3] != 12 {
			t.Errorf("element 3 is %v, want 12", x[3])
		}
		live, _ := s.Live()
		host.Free(buf)
		host.Free(buf)
		if after, _ := s.Live(); after != live || len(s.pinned) > 0 {
			t.Errorf("%d bytes are counted after Free, want %d; %d buffers are pinned", after, live, len(s.pinned))
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a kernel uses memory that was freed")
				}
			}()
			host.Fill(kernels.Tensor{Buf: buf, Rows: 1, Cols: 1, Stride: 1}, 1)
		}()
	}
	for _, n := range []int{0, -1} {
		if buf, err := host.Alloc(n); (err == nil) != (n == 0) {
			t.Errorf("%d elements: %v", n, err)
		} else if err == nil {
			host.Free(buf)
		}
	}
}

// throughDevice copies what x is given to a device and back, doubled.
func throughDevice(t *testing.T, b *Backend, x []float32) {
	t.Helper()
	dev, err := b.Alloc(len(x))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free(dev)
	for i := range x {
		x[i] = float32(i)
	}
	b.Write(kernels.Flat(dev), x)
	b.Scale(kernels.Flat(dev), kernels.Flat(dev), 2)
	if err := b.Read(x, kernels.Flat(dev)); err != nil {
		t.Fatal(err)
	}
}
