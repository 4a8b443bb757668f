package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// What a file says of model and optimizer is what is trained, field by field: its
// history says the same.
func TestWhatAFileSaysIsTrained(t *testing.T) {
	m := model.Config{Name: "own", Vocab: 256, Hidden: 6, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 4, Intermediate: 8, SeqLen: 3,
		Tied: true, QKVBias: true, LinearBias: true, NormEps: 3e-5, RopeTheta: 5000, InitStd: 0.07, InitBias: 0.04, Groups: model.Groups{Tensor: 2, Data: 8}}
	for _, o := range []optim.Config{
		{Name: "sgd", LR: 0.02, Beta1: 0.6, Beta2: 0.75, Eps: 3e-7, Momentum: 0.3, Decay: 0.25, Clip: 1.5, Warmup: 5, Horizon: 50, MinLR: 1e-4},
		{Name: "adamw", LR: 0.03, Beta1: 0.7, Beta2: 0.8, Eps: 2e-7, Momentum: 0.4, Decay: optim.NoDecay, Clip: 0.5, Warmup: 4, Horizon: 9, MinLR: 2e-4},
	} {
		dir := t.TempDir()
		b, err := json.Marshal(struct {
			model.Config
			Optimizer optim.Config `json:"optimizer"`
		}{m, o})
		config, history := filepath.Join(dir, "c.json"), filepath.Join(dir, "run")
		if err == nil {
			err = os.WriteFile(config, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := call(t.Context(), "--config", config, "--steps", "1", "--history", history); code != cli.OK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		all, err := trace.Load(history)
		if err != nil {
			t.Fatal(err)
		}
		c, err := spec.Of(all[0].Header.Spec)
		if err != nil || c.Model != m || c.Optimizer != o {
			t.Errorf("%v, got\n%+v %+v, want\n%+v %+v", err, c.Model, c.Optimizer, m, o)
		}
	}
}
