package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/ckpt"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// damages says how each of ckpt.Damages is done to the checkpoint in dir.
func damages() map[string]func(dir string) error {
	a, b := checkpoint.FileName(0), checkpoint.FileName(1)
	manifest := checkpoint.ManifestName
	return map[string]func(dir string) error{
		"a bit of the data flipped":     edit(b, func(x []byte) []byte { x[len(x)-5] ^= 1; return x }),
		"a bit of the header flipped":   edit(a, func(x []byte) []byte { x[30] ^= 4; return x }),
		"a header longer than the file": edit(a, func(x []byte) []byte { x[6] = 0xff; return x }),
		"cut short by an element":       edit(b, func(x []byte) []byte { return x[:len(x)-4] }),
		"empty":                         edit(a, func([]byte) []byte { return nil }),
		"longer by an element":          edit(b, func(x []byte) []byte { return append(x, 0, 0, 0, 0) }),
		"exchanged with another rank's": exchange(a, b),
		"of the step before": func(dir string) error {
			x, err := os.ReadFile(filepath.Join(filepath.Dir(dir), checkpoint.DirName(1), b))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, b), x, 0o644)
		},
		"removed":            func(dir string) error { return os.Remove(filepath.Join(dir, b)) },
		"manifest cut short": edit(manifest, func(x []byte) []byte { return x[:len(x)/2] }),
		"manifest of another counter": edit(manifest, func(x []byte) []byte {
			return []byte(strings.Replace(string(x), `"counter": 2`, `"counter": 1`, 1))
		}),
		"left out of the manifest": edit(manifest, func(x []byte) []byte {
			text := string(x)
			last := strings.LastIndex(text[:strings.LastIndex(text, "{")], ",")
			return []byte(text[:last] + text[strings.LastIndex(text, "]"):])
		}),
	}
}

// edit rewrites a file of a checkpoint.
func edit(file string, change func([]byte) []byte) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, file)
		x, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		was := string(x)
		x = change(x)
		if string(x) == was {
			return fmt.Errorf("%s: the damage changes nothing", file)
		}
		return os.WriteFile(path, x, 0o644)
	}
}

// exchange swaps two files of a checkpoint.
func exchange(a, b string) func(dir string) error {
	return func(dir string) error {
		aside := filepath.Join(dir, "aside")
		return errors.Join(os.Rename(filepath.Join(dir, a), aside),
			os.Rename(filepath.Join(dir, b), filepath.Join(dir, a)), os.Rename(aside, filepath.Join(dir, b)))
	}
}

// damaged is the case of damaged checkpoints. prepare, where not nil, has the
// last word before each is opened.
func damaged(o suite.Options, prepare func(dir string) error) suite.Case {
	own := suite.Options{Text: data.Default(), Backend: o.Backend}
	cfg, err := suite.Preset("nano", own, stored)
	if err != nil {
		return suite.Broken("options", err)
	}
	cfg.Model.Layers, cfg.Model.SeqLen, cfg.Sequences = 1, 2, 2
	cfg.Plan, cfg.Evidence = plan.Plan{DP: 2, Zero: 3}, spec.Evidence{}
	return suite.Case{Name: damagedName, Clauses: []string{"C-CKPT-001.5"}, Runs: map[contract.Role]suite.Run{
		contract.Test: {Do: func(ctx context.Context, env suite.Env) (*trace.History, error) {
			return attempt(ctx, env, cfg, prepare)
		}}}}
}

const damagedName = "damaged checkpoints"

// attempt resumes damaged copies of one checkpoint, and the checkpoint itself,
// and records what came of each.
func attempt(ctx context.Context, env suite.Env, cfg spec.Config, prepare func(dir string) error) (h *trace.History, err error) {
	root, err := os.MkdirTemp("", "lockstep-checkpoint-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	whole := filepath.Join(root, "whole")
	if err := (resumption{from: cfg}).store(ctx, env, whole); err != nil {
		return nil, err
	}
	log := &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, World: 1, Plan: "resume " + cfg.Plan.String(), Model: cfg.Model.Name}}
	longer, do := cfg, damages()
	longer.Steps++
	do[""] = func(string) error { return nil }
	for i, d := range append([]ckpt.Damage{{}}, ckpt.Damages()...) {
		copied := filepath.Join(root, fmt.Sprint(i))
		if err := os.CopyFS(copied, os.DirFS(whole)); err != nil {
			return nil, err
		}
		dir := filepath.Join(copied, checkpoint.DirName(stored))
		if err := do[d.Name](dir); err != nil {
			return nil, err
		}
		if prepare != nil {
			if err := prepare(dir); err != nil {
				return nil, err
			}
		}
		e := trace.Event{Kind: trace.KindRefusal, Step: stored, What: d.Name, Unit: d.File}
		if _, err := resume(ctx, env, longer, dir); err != nil {
			e.Text = strings.ReplaceAll(err.Error(), copied, "")
		}
		log.Record(e)
	}
	return trace.Merge([]*trace.Log{log})
}
