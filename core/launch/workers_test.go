package launch_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Logical workers that never have a sequence change no bit, and a run does not go
// through tens of thousands of them.
func TestIdleWorkersChangeNothing(t *testing.T) {
	var want spec.Fingerprint
	for i, x := range []struct{ sequences, data, workers int }{
		{5, 8, 8}, {5, 256, 256}, {5, 1 << 16, 256}, {5, 512, 256},
	} {
		cfg, err := spec.Preset("nano")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Sequences, cfg.Steps, cfg.Recording.Digests = x.sequences, 2, true
		cfg.Model.Layers, cfg.Model.SeqLen, cfg.Model.Groups.Data, cfg.Plan.MicroBatches = 1, 6, x.data, 0
		out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{
			Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }})
		if err != nil {
			t.Fatal(err)
		}
		ran, err := spec.Of(out.History.Header.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if n := ran.Plan.Workers(ran.Model); n != x.workers {
			t.Errorf("groups.data=%d, %d sequences: %d logical workers, want %d", x.data, x.sequences, n, x.workers)
		}
		got, err := spec.FingerprintAt(out.History, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
		} else if got != want {
			t.Errorf("groups.data=%d: %v, want %v as with %d", x.data, got, want, 8)
		}
	}
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sequences, cfg.Model.Groups.Data, cfg.Plan.MicroBatches = 1025, 1<<16, 0
	if err := cfg.Validate(); err != nil || cfg.Model.Groups.Data != 2048 {
		t.Errorf("1025 sequences: groups.data=%d, %v; want 2048, every worker up to the last with a sequence kept", cfg.Model.Groups.Data, err)
	}
}
