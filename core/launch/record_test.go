//go:build linux

package launch_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// recorded trains nano with digests on two ranks, and writes its history to dir.
func recorded(t *testing.T, steps int, dir string, parts launch.Parts) (*launch.Outcome, error) {
	t.Helper()
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Plan, err = plan.Parse("dp=2"); err != nil {
		t.Fatal(err)
	}
	cfg.Steps, cfg.Recording.Digests, cfg.Recording.Workers = steps, true, true
	be, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	parts.Backend, parts.History = func(int) (kernels.Backend, error) { return be, nil }, dir
	return launch.Local(t.Context(), cfg, data.Default(), parts)
}

// What is written while the run goes on has the bytes of what is saved after it.
func TestWrittenIsWhatWouldBeSaved(t *testing.T) {
	live, saved := t.TempDir(), t.TempDir()
	out, err := recorded(t, 3, live, launch.Parts{})
	if err == nil {
		err = out.History.Save(saved)
	}
	if err != nil {
		t.Fatal(err)
	}
	for r := range 2 {
		name := fmt.Sprintf("%04d.ndjson", r)
		want, err := os.ReadFile(filepath.Join(saved, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(live, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("rank %d: %d bytes were written, %d saved, %v", r, len(got), len(want), err)
		}
	}
}

// A step is in the file when the next one ends, whole lines only, and what ends the
// run then leaves it there.
func TestStepsAreWrittenAsTheyEnd(t *testing.T) {
	dir := t.TempDir()
	parts := launch.Parts{Hooks: train.Hooks{Progress: func(p train.Progress) {
		if p.Step != 4 {
			return
		}
		h, err := trace.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		last := h[0].Ranks[0]
		if n := last[len(last)-1].Step; n != 3 || h[0].CutOff() == "" {
			t.Errorf("at the end of step 4 the file ends with step %d, cut off %q", n, h[0].CutOff())
		}
		panic("enough")
	}}}
	if _, err := recorded(t, 9, dir, parts); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Fatalf("ended with %v", err)
	}
	h, err := trace.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if last := h[0].Ranks[0]; last[len(last)-1].Step != 4 || h[0].CutOff() == "" {
		t.Errorf("the file ends with %+v", last[len(last)-1])
	}
}

// TestMemoryIsLevel: a step of two ranks records half a megabyte of events.
func TestMemoryIsLevel(t *testing.T) {
	var heap [2]uint64
	parts := launch.Parts{Keep: func(e trace.Event) bool { return e.Kind == trace.KindEnd }, Hooks: train.Hooks{Progress: func(p train.Progress) {
		for i, at := range []int{50, 150} {
			if p.Step == at {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				heap[i] = m.HeapAlloc
			}
		}
	}}}
	out, err := recorded(t, 160, t.TempDir(), parts)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(out.Logs[0].Events()); n != 1 {
		t.Errorf("%d events were kept, want the end", n)
	}
	const most = 1 << 20
	if heap[1] > heap[0]+most {
		t.Errorf("the heap has %d bytes after 50 steps and %d after 150: must not grow by more than %d", heap[0], heap[1], most)
	}
	t.Logf("heap after 50 steps %d bytes, after 150 %d", heap[0], heap[1])
}

// TestFullDisk: the run ends, with one error that names the rank and the file, which
// ends with a whole line.
func TestFullDisk(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100_001, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old)
	dir, steps := t.TempDir(), 0
	_, err := recorded(t, 500, dir, launch.Parts{Hooks: train.Hooks{Progress: func(p train.Progress) { steps = p.Step }}})
	var failed *launch.Failure
	if !errors.As(err, &failed) || !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("ended with %v", err)
	}
	file := filepath.Join(dir, fmt.Sprintf("%04d.ndjson", failed.Rank))
	if want := fmt.Sprintf("rank %d: write %s: file too large", failed.Rank, file); err.Error() != want || steps > 100 {
		t.Errorf("%d steps, then %q, want %q", steps, err, want)
	}
	if h, err := trace.Load(dir); err != nil || h[0].CutOff() == "" {
		t.Errorf("what was written: %v", err)
	}
}
