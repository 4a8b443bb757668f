//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// TestFaultOnce: a fault that stays with a device is what Sync and Read answer from then on,
// and Close says it once, whatever there is to be closed. It happens in another process, as
// a real device gives this one no other context then.
func TestFaultOnce(t *testing.T) {
	const child = "CUDA_TEST_FAULT"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestFaultOnce$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1", "LOCKSTEP_SIM_QUIET=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestFaultOnce") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	devices := must(gpu.Open(must(gpu.ParseChoice("", os.Getenv(gpu.Variable)))(t)))(t)
	b := must(New(devices[0]))(t)
	x := must(b.Alloc(16))(t)
	var good, sum kernels.Digest
	b.Hash(&good, kernels.Flat(x), kernels.Place{ID: 1})
	b.enter()
	b.begin("fill").words(0x12345000).floats(1).words(4).elements(4)
	b.work(16)
	b.mu.Unlock()
	later := b.Sums()
	later.Hash(&sum, kernels.Flat(x), kernels.Place{ID: 1})
	later.Wait()
	if sum != (kernels.Digest{}) || good == sum {
		t.Errorf("after a fault a sum is %v, before %v", sum, good)
	}
	first := fmt.Sprint(b.Sync())
	const fault = "illegal address"
	if !strings.Contains(first, fault) || fmt.Sprint(b.Sync()) != first {
		t.Errorf("Sync: %s", first)
	}
	b.note(errors.New("something later"))
	if got := fmt.Sprint(b.fault); got != first {
		t.Errorf("the first fault is %q after another one", got)
	}
	b.Free(x)
	if got := fmt.Sprint(b.Close()); strings.Count(got, fault) != 1 {
		t.Errorf("Close says %d times what the fault is:\n%s", strings.Count(got, fault), got)
	}
	if got := fmt.Sprint(gpu.Close(devices)); strings.Contains(got, "not freed") || strings.Count(got, fault) > 1 {
		t.Errorf("then devices are closed: %s", got)
	}
}
