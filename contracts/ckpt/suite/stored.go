package suite

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/ckpt"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
)

// inFiles ends the names of cases in which only the files are looked at.
const inFiles = " stored"

// farthest is the last place that a run can go on from and be stored again: its steps
// have ten digits.
var farthest = suite.Later{Step: spec.MaxSteps - stored, Taken: spec.MaxSteps - stored - 1}

// files are the default plans that store, by level.
func files(level int) []suite.Fixture {
	f := func(config, suffix string, change func(*spec.Config), plans ...string) suite.Fixture {
		return suite.Fixture{Config: config, Steps: stored, Plans: plans, Change: change, Suffix: suffix + inFiles}
	}
	out := []suite.Fixture{
		f("nano", "", nil, "dp=4,zero=3", "tp=2,pp=2"),
		f("odd", "", nil, "dp=2,tp=2,zero=1"),
		f("odd", " sgd", sgd, "dp=4,zero=1"),
		{Config: "nano", Steps: stored, Plans: []string{"dp=2"}, Suffix: farthest.Suffix() + inFiles, At: farthest},
	}
	if level > 1 {
		out = append(out,
			f("nano", " more", nil, "dp=8", "dp=8,zero=1", "dp=4,zero=2", "dp=2,pp=2,zero=3,schedule=interleaved,virtual=2"),
			f("odd", " more", nil, "dp=4,zero=3,shard=tensors", "dp=4,zero=1,shard=balanced", "tp=4,vocab=parallel", "dp=2,tp=2,pp=2,zero=2"))
	}
	return out
}

func sgd(c *spec.Config) { c.Optimizer = optim.Config{Name: "sgd", LR: 0.1, Decay: 0.1} }

// storing makes the cases of clauses 6 and 7.
func storing(o suite.Options) []suite.Case {
	g := suite.Grid{Fixtures: files, Prepare: func(o suite.Options, c *spec.Config) {
		c.Steps = stored
		if o.Config == "" {
			c.Model.SeqLen = tokens
		}
	}, Named: func(config string, _ int) suite.Fixture {
		return suite.Fixture{Config: config, Steps: stored, Plans: []string{"dp=2,zero=1"}, Suffix: inFiles}
	}, Runs: func(_ suite.Options, f suite.Fixture, on ...spec.Config) map[contract.Role]suite.Run {
		return map[contract.Role]suite.Run{contract.Test: {Config: &on[0], First: f.At.Step, Do: keeping(f.At, on[0], nil)}}
	}, Exact: true, Clauses: []string{"C-CKPT-001.6", "C-CKPT-001.7"}}
	return g.Cases(o)
}

// keeping makes the history of a run that stores its last step, with what another
// reader finds in the files. between, where not nil, changes them before.
func keeping(at suite.Later, cfg spec.Config, between func(root string, step int) error) func(context.Context, suite.Env) (*trace.History, error) {
	return func(ctx context.Context, env suite.Env) (*trace.History, error) {
		return stores(ctx, env, at, cfg, func(h *trace.History, root string) error {
			return env.Once(ctx, func() error { return lookInto(h, cfg, root, between) })
		})
	}
}

// lookInto adds what another reader finds in the files of a run's last step, which
// between, where not nil, changes before.
func lookInto(h *trace.History, cfg spec.Config, root string, between func(root string, step int) error) error {
	if between != nil {
		if err := between(root, cfg.Steps); err != nil {
			return err
		}
	}
	dir := filepath.Join(root, checkpoint.DirName(cfg.Steps))
	if err := addFiles(h, dir, cfg.Steps-1, false); err != nil {
		return err
	}
	addTensors(h, dir, cfg)
	return nil
}

// stores makes the history of a run that begins at a place and stores its steps below a
// directory of its own, at which look looks.
func stores(ctx context.Context, env suite.Env, at suite.Later, cfg spec.Config, look func(h *trace.History, root string) error) (h *trace.History, err error) {
	root, release, err := env.Dir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	env.Parts.Checkpoints = train.Checkpoints{Dir: root, Every: 1}
	if h, err = at.Train(ctx, env, cfg); err != nil {
		return h, err
	}
	return h, look(h, root)
}

// addFiles adds the files of a checkpoint, with their contents or the manifest's
// alone, to what rank 0 recorded.
func addFiles(h *trace.History, dir string, step int, contents bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		x, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		ev := trace.Event{Kind: trace.KindFile, Step: step, Unit: e.Name(), Bytes: int64(len(x))}
		switch {
		case e.Name() == checkpoint.ManifestName:
			ev.Text = string(x)
		case contents:
			ev.Text = base64.StdEncoding.EncodeToString(x)
		}
		h.Ranks[0] = append(h.Ranks[0], ev)
	}
	return nil
}

// addTensors adds what contracts/independent reads of a checkpoint.
func addTensors(h *trace.History, dir string, cfg spec.Config) {
	moments := []string{trace.MomentM, trace.MomentV}
	if cfg.Optimizer.Name == "sgd" {
		moments = []string{trace.Momentum}
	}
	step := cfg.Steps - 1
	c, err := independent.OpenCheckpoint(dir, params(cfg.Model), moments)
	if err != nil {
		h.Ranks[0] = append(h.Ranks[0], trace.Event{Kind: trace.KindRefusal, Step: step, What: ckpt.OtherReader, Text: err.Error()})
		return
	}
	for what, tensors := range c.Tensors {
		for name, x := range tensors {
			var d independent.Digest
			d.Add(name, 0, x)
			h.Ranks[0] = append(h.Ranks[0], trace.Event{Kind: trace.KindStored, Step: step, What: what, Tensor: name, Count: int64(len(x)),
				Digest: &kernels.Digest{A: d.A, B: d.B, NonFinite: d.NonFinite}})
		}
	}
}

// params are the names and sizes of a model's tensors, by the other reader.
func params(c model.Config) []independent.Param {
	s := independent.Shape{Vocab: c.Vocab, Hidden: c.Hidden, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Intermediate: c.Intermediate, SeqLen: c.SeqLen, Tied: c.Tied, QKVBias: c.QKVBias, LinearBias: c.LinearBias}
	return s.Params()
}

const goldenName = "golden checkpoint"

// goldenCase is the case of clause 8. between, where not nil, changes what was
// stored, and whole the golden files that are resumed.
func goldenCase(between, whole func(root string, step int) error) suite.Case {
	cfg, err := golden.Checkpoint()
	if err != nil {
		return suite.Broken("options", err)
	}
	return suite.Case{Name: goldenName, Clauses: []string{"C-CKPT-001.8"}, Runs: map[contract.Role]suite.Run{
		contract.Test: {Config: &cfg, Do: func(ctx context.Context, env suite.Env) (*trace.History, error) {
			env.Text = func(string) (data.Text, error) { return data.Default(), nil } // whatever was asked for
			return stores(ctx, env, suite.Later{}, cfg, func(h *trace.History, root string) error {
				err := env.Once(ctx, func() error {
					if between != nil {
						if err := between(root, cfg.Steps); err != nil {
							return err
						}
					}
					return addFiles(h, filepath.Join(root, checkpoint.DirName(cfg.Steps)), cfg.Steps-1, true)
				})
				if err != nil {
					return err
				}
				return resumeGolden(ctx, env, h, cfg, filepath.Join(root, "golden"), whole)
			})
		}}}}
}

// resumeGolden goes on from the golden files, and adds what came of it.
func resumeGolden(ctx context.Context, env suite.Env, h *trace.History, cfg spec.Config, root string, whole func(root string, step int) error) error {
	dir := filepath.Join(root, checkpoint.DirName(cfg.Steps))
	err := env.Once(ctx, func() error {
		if err := writeGolden(dir); err != nil || whole == nil {
			return err
		}
		return whole(root, cfg.Steps)
	})
	if err != nil {
		return err
	}
	env.Parts.Checkpoints = train.Checkpoints{}
	e := trace.Event{Kind: trace.KindRefusal, Step: cfg.Steps - 1}
	cfg.Steps++
	if _, err := env.Resume(ctx, cfg, dir); err != nil {
		e.Text = strings.ReplaceAll(err.Error(), root, "")
	}
	if env.First() {
		h.Ranks[0] = append(h.Ranks[0], e)
	}
	return nil
}

// writeGolden writes the golden files of a checkpoint.
func writeGolden(dir string) error {
	all, err := golden.CheckpointFiles()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, x := range all {
		if err := os.WriteFile(filepath.Join(dir, name), x, 0o644); err != nil {
			return err
		}
	}
	return nil
}
