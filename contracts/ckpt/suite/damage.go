package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	out := inFilesAndManifest()
	maps.Copy(out, inHeaders())
	maps.Copy(out, inConfiguration())
	return out
}

// inConfiguration gives fields of the recorded configuration other values: each that
// must be the run's, and all at once that may be others.
func inConfiguration() map[string]func(dir string) error {
	out := map[string]func(dir string) error{}
	var may []func(m map[string]any)
	for _, f := range ckpt.Fields() {
		other := setting(f.Other, append([]string{"spec"}, strings.Split(f.Path, ".")...)...)
		if f.May == "" {
			out[ckpt.OfAnother(f.Path)] = manifested(other)
		} else {
			may = append(may, other)
		}
	}
	out[ckpt.Otherwise] = manifested(func(m map[string]any) {
		for _, other := range may {
			other(m)
		}
	})
	return out
}

// inFilesAndManifest are the damages of whole files, and of what the manifest says of
// them.
func inFilesAndManifest() map[string]func(dir string) error {
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
		"a bit of the data flipped and the hash repaired": all(edit(b, func(x []byte) []byte { x[len(x)-5] ^= 1; return x }), reseal),
		"tensors exchanged and the hash repaired":         all(edit(a, exchangeNames), reseal),
		"manifest of another digest":                      manifested(setting(strings.Repeat("f", 32), "digests", trace.Weight)),
		"manifest of another digest of m":                 manifested(setting(strings.Repeat("f", 32), "digests", trace.MomentM)),
		"manifest of another digest of v":                 manifested(setting(strings.Repeat("f", 32), "digests", trace.MomentV)),
		"manifest of the next format":                     manifested(setting("lockstep/checkpoint/v2", "schema")),
		"manifest of a later format":                      manifested(setting("lockstep/checkpoint/v6", "schema")),
		"manifest of the next arithmetic":                 manifested(setting(kernels.Arithmetic+1, "arithmetic")),
		"manifest of a later arithmetic":                  manifested(setting(kernels.Arithmetic+5, "arithmetic")),
		"manifest of another format":                      manifested(setting("lockstep/checkpoint/v0", "schema")),
		"manifest of another arithmetic":                  manifested(setting(kernels.Arithmetic-1, "arithmetic")),
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
		return rewrite(filepath.Join(dir, file), func(x []byte) ([]byte, error) { return change(x), nil })
	}
}

// rewrite changes a file.
func rewrite(path string, change func([]byte) ([]byte, error)) error {
	x, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	was := string(x)
	if x, err = change(x); err != nil {
		return err
	}
	if string(x) == was {
		return fmt.Errorf("%s: the damage changes nothing", filepath.Base(path))
	}
	return os.WriteFile(path, x, 0o644)
}

// all does one thing after the other.
func all(do ...func(dir string) error) func(dir string) error {
	return func(dir string) error {
		for _, f := range do {
			if err := f(dir); err != nil {
				return err
			}
		}
		return nil
	}
}

// manifested rewrites the manifest of a checkpoint.
func manifested(change func(m map[string]any)) func(dir string) error {
	return edit(checkpoint.ManifestName, func(x []byte) []byte {
		var m map[string]any
		dec := json.NewDecoder(bytes.NewReader(x))
		dec.UseNumber() // a seed is not a float64
		if dec.Decode(&m) != nil {
			return x
		}
		change(m)
		if out, err := json.Marshal(m); err == nil {
			return out
		}
		return x
	})
}

// setting gives a field of a manifest another value; path leads to it.
func setting(value any, path ...string) func(m map[string]any) {
	return func(m map[string]any) {
		for _, key := range path[:len(path)-1] {
			m, _ = m[key].(map[string]any)
		}
		if m != nil {
			m[path[len(path)-1]] = value
		}
	}
}

// lookUp is the value that a path leads to; nil where there is none.
func lookUp(m map[string]any, path []string) any {
	for _, key := range path[:len(path)-1] {
		m, _ = m[key].(map[string]any)
	}
	return m[path[len(path)-1]]
}

// exchangeNames exchanges the names of two tensors of equal shape in the header of
// a file: weights of the key and of the value projection.
func exchangeNames(x []byte) []byte {
	const k, v, aside = "weight/model.layers.0.self_attn.k_proj", "weight/model.layers.0.self_attn.v_proj", "weight/model.layers.0.self_attn.?_proj"
	text := strings.ReplaceAll(string(x), k, aside)
	text = strings.ReplaceAll(text, v, k)
	return []byte(strings.ReplaceAll(text, aside, v))
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
// last word before each is opened; whole is what it was before the damage.
func damaged(o suite.Options, prepare func(dir, whole string) error) suite.Case {
	cfg, err := damagedConfig(o)
	if err != nil {
		return suite.Broken("options", err)
	}
	return suite.Case{Name: damagedName, Clauses: []string{"C-CKPT-001.5"}, Runs: map[contract.Role]suite.Run{
		contract.Test: {Do: func(ctx context.Context, env suite.Env) (*trace.History, error) {
			return attempt(ctx, env, cfg, prepare)
		}}}}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// damagedConfig is the run whose checkpoint is damaged.
func damagedConfig(o suite.Options) (spec.Config, error) {
	own := suite.Options{Text: data.Default(), Backend: o.Backend}
	cfg, err := suite.Preset("nano", own, stored)
	cfg.Model.Layers, cfg.Model.SeqLen, cfg.Sequences = 1, 2, 2
	cfg.Plan, cfg.Recording = plan.Plan{DP: 2, Zero: 3}, spec.Recording{}
	return cfg, err
}

const damagedName = "damaged checkpoints"

// attempt resumes damaged copies of one checkpoint, and the checkpoint itself,
// and records what came of each.
func attempt(ctx context.Context, env suite.Env, cfg spec.Config, prepare func(dir, whole string) error) (h *trace.History, err error) {
	root, release, err := env.Dir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
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
		err := env.Once(ctx, func() error { return damage(whole, copied, d.Name, do[d.Name], prepare) })
		if err != nil {
			return nil, err
		}
		dir := damagedDir(copied)
		e := trace.Event{Kind: trace.KindRefusal, Step: stored, What: d.Name, Unit: d.File}
		if _, err := env.Resume(ctx, longer, dir); err != nil {
			e.Text = strings.ReplaceAll(err.Error(), copied, "")
		}
		log.Record(e)
	}
	log.Record(trace.Event{Kind: trace.KindEnd, Step: stored})
	if !env.First() {
		return nil, nil
	}
	return trace.Merge([]*trace.Log{log})
}

// damage makes a damaged copy of a checkpoint.
func damage(whole, copied, name string, do func(dir string) error, prepare func(dir, whole string) error) error {
	if err := os.CopyFS(copied, os.DirFS(whole)); err != nil {
		return err
	}
	if err := do(filepath.Join(copied, checkpoint.DirName(stored))); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if prepare == nil {
		return nil
	}
	return prepare(damagedDir(copied), filepath.Join(whole, checkpoint.DirName(stored)))
}

// damagedDir is the checkpoint to be opened of a damaged copy.
func damagedDir(copied string) string {
	if after := filepath.Join(copied, checkpoint.DirName(beyond)); exists(after) {
		return after
	}
	return filepath.Join(copied, checkpoint.DirName(stored))
}
