package golden

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

//go:embed checkpoint
var checkpointFiles embed.FS

// RecordCheckpoint is the command that makes the files of golden/checkpoint anew.
const RecordCheckpoint = "make golden-checkpoint"

// CheckpointSteps is the number of steps after which the golden checkpoint is
// stored.
const CheckpointSteps = 2

// Checkpoint is the run whose checkpoint is golden: a model so small that its
// files are, whose tensors are cut by rows, columns and shards, on the default
// text. The files hold the name of a backend; another one stores the same bytes
// under this one's name.
func Checkpoint() (spec.Config, error) {
	p, err := plan.Parse("dp=2,tp=2,zero=3")
	if err != nil {
		return spec.Config{}, err
	}
	c := spec.Config{
		Model: model.Config{Name: "speck", Vocab: 256, Hidden: 3, Layers: 1, Heads: 2, KVHeads: 2, HeadDim: 2, Intermediate: 4, SeqLen: 5,
			Tied: true, QKVBias: true, InitStd: 0.1, InitBias: 0.1, Groups: model.Groups{Tensor: 2, Data: 2}},
		Plan: p, Optimizer: optim.Config{Name: "adamw", Clip: 1}, Sequences: 4, Text: "default", Seed: 1, Steps: CheckpointSteps, Backend: "ref"}
	return c, c.Validate()
}

// CheckpointFiles are the bytes of the golden checkpoint's files by name. Without
// any it is an error that names the command which records them.
func CheckpointFiles() (map[string][]byte, error) {
	out := map[string][]byte{}
	entries, err := fs.ReadDir(checkpointFiles, "checkpoint")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() == "README.md" {
			continue
		}
		if out[e.Name()], err = fs.ReadFile(checkpointFiles, "checkpoint/"+e.Name()); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no golden checkpoint; %q records it", RecordCheckpoint)
	}
	return out, nil
}
