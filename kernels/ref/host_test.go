package ref_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Host gives the elements of the float32 instance, and none of the float64 one.
func TestHost(t *testing.T) {
	b := ref.New[float32]()
	buf, _ := b.Alloc(6)
	x := kernels.Flat(buf)
	if host, ok := b.Host(x.Range(2, 5)); !ok || len(host) != 3 || &host[0] != &ref.Data[float32](x)[2] {
		t.Errorf("Host of 3 elements at 2: %v, %t", host, ok)
	}
	if host, ok := b.Host(x.As(2, 3).ColRange(0, 2)); ok {
		t.Errorf("Host of a strided tensor: %v", host)
	}
	wide := ref.New[float64]()
	buf, _ = wide.Alloc(6)
	if host, ok := wide.Host(kernels.Flat(buf)); ok {
		t.Errorf("Host of float64 elements: %v", host)
	}
}
