package ckpt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/cases"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// damage is something done to a checkpoint, and the file that a refusal must
// name.
type damage struct {
	name, file string
	do         func(dir string) error
}

// damages lists what is done to a checkpoint of two ranks after two steps.
func damages() []damage {
	a, b := checkpoint.FileName(0), checkpoint.FileName(1)
	manifest := checkpoint.ManifestName
	return []damage{
		{"a bit of the data flipped", b, edit(b, func(x []byte) []byte { x[len(x)-5] ^= 1; return x })},
		{"a bit of the header flipped", a, edit(a, func(x []byte) []byte { x[30] ^= 4; return x })},
		{"a header longer than the file", a, edit(a, func(x []byte) []byte { x[6] = 0xff; return x })},
		{"cut short by an element", b, edit(b, func(x []byte) []byte { return x[:len(x)-4] })},
		{"empty", a, edit(a, func([]byte) []byte { return nil })},
		{"longer by an element", b, edit(b, func(x []byte) []byte { return append(x, 0, 0, 0, 0) })},
		{"exchanged with another rank's", a, exchange(a, b)},
		{"of the step before", b, func(dir string) error {
			x, err := os.ReadFile(filepath.Join(filepath.Dir(dir), checkpoint.DirName(1), b))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, b), x, 0o644)
		}},
		{"removed", b, func(dir string) error { return os.Remove(filepath.Join(dir, b)) }},
		{"manifest cut short", manifest, edit(manifest, func(x []byte) []byte { return x[:len(x)/2] })},
		{"manifest of another counter", a, edit(manifest, func(x []byte) []byte {
			return []byte(strings.Replace(string(x), `"counter": 2`, `"counter": 1`, 1))
		})},
		{"left out of the manifest", checkpoint.DirName(2), edit(manifest, func(x []byte) []byte {
			text := string(x)
			last := strings.LastIndex(text[:strings.LastIndex(text, "{")], ",")
			return []byte(text[:last] + text[strings.LastIndex(text, "]"):])
		})},
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
func damaged(o contract.Options, prepare func(dir string) error) contract.Case {
	own := contract.Options{Text: data.Default(), Backend: o.Backend}
	cfg, err := cases.Preset("nano", own, stored)
	if err != nil {
		return cases.Broken("options", err)
	}
	cfg.Model.Layers, cfg.Model.SeqLen, cfg.Sequences = 1, 2, 2
	cfg.Plan, cfg.Evidence = plan.Plan{DP: 2, Zero: 3}, spec.Evidence{}
	return contract.Case{Name: damagedName, Clauses: []string{"C-CKPT-001.5"}, Runs: map[contract.Role]contract.Run{
		contract.Test: {Do: func(ctx context.Context, env contract.Env) (*trace.History, error) {
			return attempt(ctx, env, cfg, prepare)
		}}}}
}

const damagedName = "damaged checkpoints"

// attempt resumes damaged copies of one checkpoint, and the checkpoint itself,
// and records what came of each.
func attempt(ctx context.Context, env contract.Env, cfg spec.Config, prepare func(dir string) error) (h *trace.History, err error) {
	root, err := os.MkdirTemp("", "lockstep-checkpoint-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	whole := filepath.Join(root, "whole")
	if err := (resumption{from: cfg}).store(ctx, env, data.Default(), whole); err != nil {
		return nil, err
	}
	log := &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, World: 1, Plan: "resume " + cfg.Plan.String(), Model: cfg.Model.Name}}
	for i, d := range append([]damage{{name: "", do: func(string) error { return nil }}}, damages()...) {
		copied := filepath.Join(root, fmt.Sprint(i))
		if err := os.CopyFS(copied, os.DirFS(whole)); err != nil {
			return nil, err
		}
		dir := filepath.Join(copied, checkpoint.DirName(stored))
		if err := d.do(dir); err != nil {
			return nil, err
		}
		if prepare != nil {
			if err := prepare(dir); err != nil {
				return nil, err
			}
		}
		e := trace.Event{Kind: trace.KindRefusal, Step: stored, What: d.name, Unit: d.file}
		if err := goOn(ctx, env, cfg, dir); err != nil {
			e.Text = strings.ReplaceAll(err.Error(), copied, "")
		}
		log.Record(e)
	}
	return trace.Merge([]*trace.Log{log})
}

// goOn resumes one more step from the checkpoint in dir.
func goOn(ctx context.Context, env contract.Env, cfg spec.Config, dir string) error {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	defer c.Close()
	cfg.Steps = stored + 1
	parts := env.Parts
	parts.Checkpoints.Resume = c
	_, err = launch.Local(ctx, cfg, data.Default(), parts)
	return err
}

// refused is clause 5: each damage is refused by the name of the file, and a
// checkpoint without damage is not.
func refused(p *contract.Pass) {
	h, ok := p.History(contract.Test)
	if !ok {
		return
	}
	found := map[string]trace.Event{}
	for e := range h.All {
		if e.Kind == trace.KindRefusal {
			found[e.What] = e
		}
	}
	p.Expect(1)
	if e, ok := found[""]; ok {
		p.Saw(1)
		if e.Text != "" {
			p.Report(contract.Finding{Rank: -1, Step: e.Step, Index: -1, Got: e.Text, Message: "a checkpoint without damage is refused"})
		}
	}
	for _, d := range damages() {
		p.Expect(1)
		e, ok := found[d.name]
		if !ok {
			continue
		}
		p.Saw(1)
		switch {
		case e.Text == "":
			p.Report(contract.Finding{Rank: -1, Step: e.Step, Index: -1, Want: d.file, Message: fmt.Sprintf("a checkpoint is resumed with a file that is damaged: %s, %s", d.file, d.name)})
		case !strings.Contains(e.Text, d.file):
			p.Report(contract.Finding{Rank: -1, Step: e.Step, Index: -1, Got: e.Text, Want: d.file, Message: fmt.Sprintf("the refusal of a damaged checkpoint (%s) does not name the file", d.name)})
		}
	}
}
