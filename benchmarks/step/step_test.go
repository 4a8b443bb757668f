package step_test

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/benchmarks/step"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

func config(t *testing.T, groups model.Groups) spec.Config {
	t.Helper()
	c, err := step.Config("nano", groups, 5)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func backend(t *testing.T) kernels.Backend {
	t.Helper()
	b, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSteps: what is timed is the run itself, step by step.
func TestSteps(t *testing.T) {
	c, b := config(t, model.Groups{Tensor: 4, Data: 8}), backend(t)
	c.Steps = 3
	want, err := launch.Local(t.Context(), c, data.Default(), launch.Parts{Backend: func(int) (kernels.Backend, error) { return b, nil }})
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Start(c, b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, loss := range want.Loss {
		if i > 0 {
			if d, used, err := r.Step(); err != nil || d <= 0 || used <= 0 {
				t.Fatalf("step %d: %v, %v used, %v", i, d, used, err)
			}
		}
		if p := r.Last(); p.Step != i || p.Loss != loss {
			t.Errorf("step %d, loss %v: want %d, %v", p.Step, p.Loss, i, loss)
		}
	}
}

// TestEnds: a run that cannot start, or was closed, is an error.
func TestEnds(t *testing.T) {
	c := config(t, model.Groups{Tensor: 1, Data: 1})
	c.Plan.DP = -1
	if _, err := step.Start(c, backend(t)); err == nil || !strings.Contains(err.Error(), "dp=-1") {
		t.Errorf("started with dp=-1: %v", err)
	}
	c.Plan.DP = 1
	r, err := step.Start(c, backend(t))
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, _, err := r.Step(); err == nil {
		t.Error("a closed run took a step")
	}
}
