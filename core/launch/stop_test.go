package launch_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Whoever asks first about a step decides for all, in whichever order the others
// come.
func TestStopIsOneDecision(t *testing.T) {
	wanted := false
	s := launch.Stop{Wanted: func() bool { return wanted }}
	ask := func(step int, want bool) {
		t.Helper()
		if got := s.Ask(step); got != want {
			t.Errorf("step %d: %v, want %v", step, got, want)
		}
	}
	ask(3, false)
	ask(4, false)
	if _, ok := s.After(); ok {
		t.Error("ended before anybody wanted it")
	}
	wanted = true
	ask(3, false) // decided before
	ask(4, false)
	ask(5, true)
	ask(4, false) // a rank that is late
	ask(5, true)
	if n, ok := s.After(); n != 6 || !ok {
		t.Errorf("after %d steps, %v", n, ok)
	}
}

func run(t *testing.T, text string, steps int, c train.Checkpoints) *trace.History {
	t.Helper()
	cfg, err := spec.Preset("nano")
	if err == nil {
		cfg.Plan, err = plan.Parse(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.Steps, cfg.Recording.Digests = steps, true
	out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Hooks: train.Hooks{Checkpoints: c},
		Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return out.History
}

// A run that is stopped stores what it has, and goes on under another plan as if
// nobody had stopped it.
func TestStoppedRunsGoOn(t *testing.T) {
	want, err := spec.FingerprintAt(run(t, "dp=1", 4, train.Checkpoints{}), 3)
	if err != nil {
		t.Fatal(err)
	}
	for first, then := range map[string]string{"dp=4,zero=3": "tp=2,pp=2", "tp=2,pp=2": "dp=2"} {
		dir, asked := t.TempDir(), 0
		s := launch.Stop{Wanted: func() bool { asked++; return asked == 2 }}
		h := run(t, first, 100, train.Checkpoints{Dir: dir, Stop: s.Ask})
		if n, ok := s.After(); n != 2 || !ok {
			t.Fatalf("%s: stopped after %d steps, %v", first, n, ok)
		}
		for e := range h.All {
			if e.Step > 1 || e.Kind == trace.KindEnd {
				t.Fatalf("%s: %s of step %d of a run that was stopped after 2", first, e.Kind, e.Step)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, checkpoint.DirName(2), checkpoint.ManifestName)); err != nil {
			t.Fatal(err)
		}
		ck, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := spec.FingerprintAt(run(t, then, 4, train.Checkpoints{Resume: ck}), 3)
		if err != nil || got != want {
			t.Errorf("%s, then %s: %s (%v), uninterrupted %s", first, then, got, err, want)
		}
		if err := ck.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The last step needs no stop: the run ends as it would.
func TestStopAtTheLastStepIsAnEnd(t *testing.T) {
	s := launch.Stop{Wanted: func() bool { return true }}
	ended := false
	for e := range run(t, "dp=2", 1, train.Checkpoints{Stop: s.Ask}).All {
		ended = ended || e.Kind == trace.KindEnd
	}
	if _, ok := s.After(); ok || !ended {
		t.Errorf("stopped %v, ended %v", ok, ended)
	}
}
