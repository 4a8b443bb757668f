package othertrainer

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
)

// TestBackend is all that the author of a backend has to write. The whole suite
// is kerneltest.Run(t, open); one that replaces a single kernel may name it.
func TestBackend(t *testing.T) {
	open := func(*testing.T) kernels.Backend { return NewBackend() }
	kerneltest.RunWith(t, open, kerneltest.Options{Only: []string{"Memory", "Misuse", "MatMulNT", "Reduce", "Hash"}})
}

// The planted bug rounds twice, product and sum, as a processor without a fused
// multiply-add does.
func TestBackendWithABug(t *testing.T) {
	b := NewBackend()
	b.MultiplyAdd = func(x, y, c float32) float32 { return float32(x*y) + c }
	var found findings
	kerneltest.Check(&found, b, kerneltest.Options{Only: []string{"MatMulNT"}})
	if len(found) == 0 || !strings.Contains(found.String(), "MatMulNT") {
		t.Errorf("the suite does not see a product that rounds twice: %s", found)
	}
	t.Log(found[0])
}
