package null_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/null"
)

// There are no elements to give.
func TestHost(t *testing.T) {
	b := null.New()
	buf, _ := b.Alloc(6)
	if host, ok := b.Host(kernels.Flat(buf)); ok {
		t.Errorf("Host gives %v", host)
	}
}
