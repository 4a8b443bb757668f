//go:build cuda

package cuda_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cuda"
)

// freeing is a backend that frees what a run leaves to the collector.
type freeing struct {
	*cuda.Backend
	bufs []kernels.Buffer
}

func (f *freeing) Alloc(n int) (kernels.Buffer, error) {
	buf, err := f.Backend.Alloc(n)
	if err == nil {
		f.bufs = append(f.bufs, buf)
	}
	return buf, err
}

func (f *freeing) free() {
	for _, buf := range f.bufs {
		f.Free(buf)
	}
}

// hidden is a backend of which nobody sees more than the kernels: each sum is waited for.
type hidden struct{ kernels.Backend }

// TestWaits prints how often a step waits for the device, and how much it launches: with
// sums that are waited for one by one, and together. All but three are the waits of the
// all-reduces, before and after each. How often depends on layers and groups, not on sizes:
// 350M is counted in the widths of nano.
func TestWaits(t *testing.T) {
	b := &freeing{Backend: open(t)}
	defer b.free()
	for _, c := range []struct {
		model, what string
		record      spec.Recording
		most        uint64
	}{
		{"nano", "plain", spec.Recording{}, 18},
		{"nano", "digests", spec.Recording{Digests: true}, 19},
		{"nano", "workers and taps", spec.Recording{Digests: true, Workers: true, Taps: true}, 20},
		{"350M", "plain", spec.Recording{}, 58},
		{"350M", "digests", spec.Recording{Digests: true}, 62}, // the words are full now and then,
		{"350M", "workers and taps", spec.Recording{Digests: true, Workers: true, Taps: true}, 68},
	} {
		if testing.Short() && (c.record.Digests || c.model != "nano") {
			continue
		}
		single, _ := waitsOf(t, c.model, c.record, b.Backend, hidden{b})
		together, launched := waitsOf(t, c.model, c.record, b.Backend, b)
		t.Logf("%s, dp=1, %s: a step waits %d times, %d where each sum is waited for; %d launches (%s)", c.model, c.what, together, single, launched, b.Name())
		if together > c.most {
			t.Errorf("%s, %s: a step waits %d times, want at most %d", c.model, c.what, together, c.most)
		}
	}
}

// waitsOf is what a second step costs.
func waitsOf(t *testing.T, name string, record spec.Recording, b *cuda.Backend, as kernels.Backend) (waits, launches uint64) {
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Plan, err = plan.Parse("dp=1"); err != nil {
		t.Fatal(err)
	}
	if cfg.Model.SeqLen, cfg.Recording = 8, record; name != "nano" {
		deep, err := spec.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		m := deep.Model
		cfg.Model.Layers, cfg.Model.Heads, cfg.Model.KVHeads, cfg.Model.HeadDim, cfg.Model.Groups = m.Layers, m.Heads, m.KVHeads, 2, m.Groups
	}
	var total [2][2]uint64
	for i := range total {
		cfg.Steps = i + 1
		before, ran := b.Waits(), all(b)
		if _, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Backend: func(int) (kernels.Backend, error) { return as, nil }}); err != nil {
			t.Fatal(err)
		}
		total[i] = [2]uint64{b.Waits() - before, all(b) - ran}
	}
	return total[1][0] - total[0][0], total[1][1] - total[0][1]
}

// all counts launches.
func all(b *cuda.Backend) (n uint64) {
	for _, r := range b.Tally() {
		n += r.Calls
	}
	return n
}
