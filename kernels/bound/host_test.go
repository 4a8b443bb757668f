package bound_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/bound"
)

// A write to the float32 values alone would leave their bounds behind.
func TestHost(t *testing.T) {
	b := bound.New()
	buf, _ := b.Alloc(6)
	if host, ok := b.Host(kernels.Flat(buf)); ok {
		t.Errorf("Host gives %v", host)
	}
}
