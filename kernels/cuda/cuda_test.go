//go:build cuda

package cuda_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cuda"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
)

// open gives the backend of the first device of the choice that the environment makes: a
// simulated one unless it says otherwise.
func open(t testing.TB) *cuda.Backend { return cuda.OpenedBy(t, newBackend) }

// newBackend takes the PTX that ships, or that of the directory which -ptx names: what
// another compiler makes of the same sources.
func newBackend(d *gpu.Device) (*cuda.Backend, error) {
	if *otherPTX == "" {
		return cuda.New(d)
	}
	return cuda.NewOf(d, os.DirFS(*otherPTX))
}

var otherPTX = flag.String("ptx", "", "directory of PTX to test in place of what ships")

// TestConformance: every kernel gives the bits of package ref, and none was left out.
func TestConformance(t *testing.T) {
	b, o := open(t), kerneltest.Options{Level: 1}
	if testing.Short() {
		o.MaxWork = 3000
	}
	kerneltest.RunWith(t, func(t *testing.T) kernels.Backend { return b }, o)
	if testing.Short() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // these are not all
	}
	for _, r := range b.Tally() {
		if r.Calls == 0 {
			t.Errorf("kernel %s never ran", r.Name)
		}
	}
}

// TestName: a simulated device is in the name.
func TestName(t *testing.T) {
	b := open(t)
	if kernels.Simulated(b.Name()) != b.Device().Simulated {
		t.Errorf("backend %s of %s", b.Name(), b.Device())
	}
}
