package ckpt_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/ckpt"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest/transcript"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
)

// kept is a history of two ranks after one step, written by hand, with what a
// reader found in the files.
type kept struct {
	trace.History
	manifest map[string]any
	cfg      spec.Config
}

// digest is one of a kind and parameter; in shares each rank has half of it.
func digest(what string, p *model.Param, part uint64) *kernels.Digest {
	d := kernels.Digest{A: kernels.TensorID(what) + p.ID, B: p.ID ^ 5}
	if part == 1 {
		return &d
	}
	return &kernels.Digest{A: d.A * part, B: d.B * part}
}

func keep(t *testing.T) *kept {
	t.Helper()
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Model.Layers, cfg.Steps, cfg.Recording.Digests, cfg.Seed = 1, 1, true, 1<<53
	if cfg.Plan, err = plan.Parse("dp=2"); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	k := &kept{cfg: cfg, History: trace.History{Ranks: map[int][]trace.Event{0: nil, 1: nil}, Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic,
		World: 2, Plan: cfg.Plan.String(), Model: "nano", Backend: "none", Spec: cfg.Recorded()}}}
	sums := map[string]kernels.Digest{}
	l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
	for _, what := range []string{trace.Weight, trace.MomentM, trace.MomentV} {
		for i := range l.Params {
			p := &l.Params[i]
			for rank := range 2 { // of each step another, or the run would be idle
				k.add(rank, trace.Event{Kind: trace.KindDigest, Step: -1, What: what, Tensor: p.Name, Count: int64(p.Len()), Digest: digest(what, p, 7), Once: rank == 0})
				k.add(rank, trace.Event{Kind: trace.KindDigest, What: what, Tensor: p.Name, Count: int64(p.Len()), Digest: digest(what, p, 1), Once: rank == 0})
			}
			k.add(0, trace.Event{Kind: trace.KindStored, What: what, Tensor: p.Name, Count: int64(p.Len()), Digest: digest(what, p, 1)})
			d := sums[what]
			d.Add(*digest(what, p, 1))
			sums[what] = d
		}
	}
	k.add(0, trace.Event{Kind: trace.KindScalar, What: trace.Counter, Value: 1})
	files := []any{}
	for rank, size := range []int64{1000, 2000} {
		k.add(0, trace.Event{Kind: trace.KindFile, Unit: checkpoint.FileName(rank), Bytes: size})
		files = append(files, map[string]any{"name": checkpoint.FileName(rank), "bytes": size, "sha256": "0"})
	}
	b, err := json.Marshal(map[string]any{"schema": checkpoint.Schema, "arithmetic": kernels.Arithmetic, "step": 1, "counter": 1, "spec": cfg.Recorded().Lockstep, "digests": sums, "files": files})
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber() // a seed is not a float64
		err = dec.Decode(&k.manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kept) add(rank int, e trace.Event) {
	e.Rank = rank
	k.Ranks[rank] = append(k.Ranks[rank], e)
}

// change does something to the events of rank 0 that are wanted, and drop takes
// them away.
func (k *kept) change(want func(e *trace.Event) bool, do func(e *trace.Event)) {
	for i := range k.Ranks[0] {
		if want(&k.Ranks[0][i]) {
			do(&k.Ranks[0][i])
		}
	}
}

func (k *kept) drop(want func(e *trace.Event) bool) {
	k.Ranks[0] = slices.DeleteFunc(k.Ranks[0], func(e trace.Event) bool { return want(&e) })
}

// is selects events of the last step by kind, and by What, Unit or Tensor where
// these are not empty.
func is(kind trace.Kind, what, name string) func(*trace.Event) bool {
	return func(e *trace.Event) bool {
		return e.Kind == kind && e.Step >= 0 && (what == "" || e.What == what) && (name == "" || e.Unit == name || e.Tensor == name)
	}
}

// judged is what clause n came to on a history.
func judged(t *testing.T, n int, h *trace.History) contract.Result {
	t.Helper()
	all, err := contract.Judge(t.Context(), ckpt.Contract(), []contract.Evidence{{Case: "by hand", Histories: map[contract.Role]*trace.History{contract.Test: transcript.Ended(h)}}})
	if err != nil {
		t.Fatal(err)
	}
	return all[n-1]
}

// comes compares what a clause came to with a verdict and a part of what it says.
func comes(t *testing.T, r contract.Result, want contract.Verdict, says string) {
	t.Helper()
	var all []string
	for _, f := range r.Findings {
		all = append(all, fmt.Sprintf("%s: got %s, want %s: %s", f.Tensor, f.Got, f.Want, f.Message))
	}
	text := strings.Join(append(all, r.Doubts...), "\n")
	if r.Verdict() != want || !strings.Contains(text, says) || (want == contract.Held) != (text == "") {
		t.Errorf("%s is %s, want %s and %q:\n%s", r.Clause.ID, r.Verdict(), want, says, text)
	}
	if want == contract.Violated && r.Total != 1 {
		t.Errorf("%s: %d findings, want 1:\n%s", r.Clause.ID, r.Total, text)
	}
}

const norm = "model.norm.weight"

// TestKept: clause 6, on files of which a reader says by hand what is in them.
func TestKept(t *testing.T) {
	one := is(trace.KindStored, trace.MomentM, norm)
	for _, c := range []struct {
		name string
		do   func(k *kept)
		want contract.Verdict
		says string
	}{
		{"as stored", func(*kept) {}, contract.Held, ""},
		{"another digest", func(k *kept) { k.change(one, func(e *trace.Event) { e.Digest = &kernels.Digest{A: 1} }) }, contract.Violated, "m in the checkpoint's files is not what the run had"},
		{"another number of elements", func(k *kept) { k.change(one, func(e *trace.Event) { e.Count-- }) }, contract.Violated, norm + ": "},
		{"not there", func(k *kept) { k.drop(one) }, contract.Inconclusive, "saw 35 of 36"},
		{"another step", func(k *kept) { k.change(one, func(e *trace.Event) { e.Step = 1 }) }, contract.Inconclusive, "saw 35 of 36"},
		{"under another kind", func(k *kept) {
			k.add(0, trace.Event{Kind: trace.KindStored, What: "momentum", Tensor: norm, Count: 32, Digest: &kernels.Digest{}})
		}, contract.Violated, norm + ": got , want : the files hold momentum of it, which the run does not have"},
		{"under another name", func(k *kept) {
			k.add(0, trace.Event{Kind: trace.KindStored, What: trace.MomentM, Tensor: "other", Count: 32, Digest: &kernels.Digest{}})
		}, contract.Violated, "other: got , want : the files hold m of it"},
		{"not to be read", func(k *kept) {
			k.add(0, trace.Event{Kind: trace.KindRefusal, What: ckpt.OtherReader, Text: "torn"})
		}, contract.Violated, "got torn, want : the files that were stored cannot be read"},
		{"refused by another", func(k *kept) { k.add(0, trace.Event{Kind: trace.KindRefusal, What: "empty", Text: "torn"}) }, contract.Held, ""},
		{"the run does not say", func(k *kept) { k.drop(is(trace.KindDigest, trace.MomentM, norm)) }, contract.Inconclusive, "saw 35 of 36"},
		{"the run says a part", func(k *kept) {
			k.change(is(trace.KindDigest, trace.MomentM, norm), func(e *trace.Event) { e.Count-- })
		}, contract.Inconclusive, "saw 35 of 36"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keep(t)
			c.do(k)
			comes(t, judged(t, 6, &k.History), c.want, c.says)
		})
	}
}

// TestManifest: clause 7, field by field.
func TestManifest(t *testing.T) {
	set := func(value any, path ...string) func(*kept) {
		return func(k *kept) {
			m := k.manifest
			for _, p := range path[:len(path)-1] {
				m = m[p].(map[string]any)
			}
			if m[path[len(path)-1]] = value; value == nil {
				delete(m, path[len(path)-1])
			}
		}
	}
	listed := func(change func([]any) []any) func(*kept) {
		return func(k *kept) { k.manifest["files"] = change(k.manifest["files"].([]any)) }
	}
	file := is(trace.KindFile, "", checkpoint.FileName(1))
	for _, c := range []struct {
		name string
		do   func(k *kept)
		want contract.Verdict
		says string
	}{
		{"as it was", func(*kept) {}, contract.Held, ""},
		{"schema", set("lockstep/checkpoint/v2", "schema"), contract.Violated, "want lockstep/checkpoint/v1: the schema of the manifest"},
		{"arithmetic", set(9, "arithmetic"), contract.Violated, "got 9, want 2: the arithmetic of the manifest"},
		{"step", set(0, "step"), contract.Violated, "got 0, want 1: the step of the manifest"},
		{"counter", set(0, "counter"), contract.Violated, "got 0, want 1: the counter of the manifest"},
		{"no counter of the run", func(k *kept) { k.drop(is(trace.KindScalar, trace.Counter, "")) }, contract.Inconclusive, "saw 12 of 13"},
		{"no arithmetic of the run", func(k *kept) { k.Header.Arithmetic = 0 }, contract.Inconclusive, "saw 12 of 13"},
		{"last step", set("pad", "spec", "last_step"), contract.Violated, `got "pad", want "drop": last_step in the configuration`},
		{"blank", set([]int{0}, "spec", "blank"), contract.Violated, "got [0], want : blank in the configuration"},
		{"another seed", set(1<<53+1, "spec", "seed"), contract.Violated, "got 9007199254740993, want 9007199254740992: seed"},
		{"a field less", set(nil, "spec", "seed"), contract.Violated, `want 9007199254740992: seed in the configuration`},
		{"a field more", set(1, "spec", "more"), contract.Violated, "got 1, want : more in the configuration"},
		{"within a field", set(9, "spec", "model", "hidden"), contract.Violated, "model in the configuration"},
		{"no configuration", set("x", "spec"), contract.Violated, ""},
		{"a digest", set(strings.Repeat("0", 32), "digests", trace.MomentV), contract.Violated, "the digest of v of the manifest"},
		{"a digest more", set(strings.Repeat("0", 32), "digests", "momentum"), contract.Violated, "got m momentum v weight, want m v weight: the list of digests"},
		{"a share of a digest", func(k *kept) { k.change(is(trace.KindDigest, trace.MomentV, norm), func(e *trace.Event) { e.Count-- }) }, contract.Inconclusive, "saw 12 of 13"},
		{"the run does not say it", func(k *kept) { k.drop(is(trace.KindDigest, trace.MomentV, norm)) }, contract.Inconclusive, "saw 12 of 13"},
		{"a size", func(k *kept) { k.change(file, func(e *trace.Event) { e.Bytes++ }) }, contract.Violated, "got 2000, want 2001: the size of rank-00001.safetensors"},
		{"no file", func(k *kept) { k.drop(file) }, contract.Inconclusive, "saw 12 of 13"},
		{"a file not listed", func(k *kept) {
			k.add(0, trace.Event{Kind: trace.KindFile, Unit: "more"})
		}, contract.Violated, "the manifest does not list more"},
		{"a file listed twice", listed(func(all []any) []any { return append(all, all[0]) }), contract.Violated, "got 3, want 2: the number of files"},
		{"no manifest", func(k *kept) { k.manifest = nil }, contract.Inconclusive, "saw 0 of 1"},
		{"a manifest of another step", func(k *kept) { k.manifest["other"] = true }, contract.Inconclusive, "saw 0 of 1"},
		{"no JSON", func(k *kept) { k.manifest = map[string]any{} }, contract.Violated, "the manifest cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keep(t)
			c.do(k)
			b, err := json.Marshal(k.manifest)
			if err != nil {
				t.Fatal(err)
			}
			e := trace.Event{Kind: trace.KindFile, Unit: checkpoint.ManifestName, Text: string(b)}
			switch {
			case k.manifest == nil:
				e.Unit = "" // and no file
			case len(k.manifest) == 0:
				e.Text = "{"
			case k.manifest["other"] != nil:
				e.Step = 1
			}
			if e.Unit != "" {
				k.add(0, e)
			}
			r := judged(t, 7, &k.History)
			if c.name == "no configuration" { // all fields are missing
				if r.Verdict() != contract.Violated || r.Total != 11 {
					t.Errorf("%s with %d findings", r.Verdict(), r.Total)
				}
				return
			}
			comes(t, r, c.want, c.says)
		})
	}
}

// TestGoldenFiles: clause 8, on the golden files as they are and changed.
func TestGoldenFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(all map[string]string)
		want contract.Verdict
		says string
	}{
		{"as they are", func(map[string]string) {}, contract.Held, ""},
		{"a byte", func(all map[string]string) {
			x := []byte(all[checkpoint.FileName(2)])
			x[100] ^= 1
			all[checkpoint.FileName(2)] = string(x)
		}, contract.Violated, "rank-00002.safetensors is not the golden one, from byte 100 on (7904 bytes, 7904 there)"},
		{"shorter", func(all map[string]string) { all[checkpoint.FileName(3)] = all[checkpoint.FileName(3)][:2000] }, contract.Violated, "from byte 2000 on (2000 bytes, 2264 there)"},
		{"longer", func(all map[string]string) { all[checkpoint.FileName(3)] += "x" }, contract.Violated, `got "x", want "": rank-00003.safetensors is not the golden one, from byte 2264 on (2265 bytes`},
		{"manifest", func(all map[string]string) { all[checkpoint.ManifestName] += " " }, contract.Violated, "checkpoint.json is not the golden one"},
		{"marked, of a device that is not", func(all map[string]string) { all[checkpoint.ManifestName] = mark(all) }, contract.Violated, "checkpoint.json is not the golden one, from byte 1799 on"},
		{"simulated", func(all map[string]string) { all[checkpoint.ManifestName] = mark(all) }, contract.Held, ""},
		{"simulated, without the mark", func(map[string]string) {}, contract.Violated, `want ",\n \"simulated\": `},
		{"a file more", func(all map[string]string) { all["more"] = "x" }, contract.Violated, "got more, want : a file that the golden checkpoint does not have"},
		{"a file less", func(all map[string]string) { delete(all, checkpoint.FileName(0)) }, contract.Inconclusive, "saw 5 of 6"},
		{"not resumed", func(all map[string]string) { delete(all, "") }, contract.Inconclusive, "saw 5 of 6"},
		{"refused", func(all map[string]string) { all[""] = "of the past" }, contract.Violated, "got of the past, want : the golden checkpoint is refused"},
		{"refused after a damage", func(all map[string]string) { all["damage"] = "" }, contract.Held, ""},
		{"no base64", func(all map[string]string) { all["raw"] = "" }, contract.Violated, "illegal base64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := golden.CheckpointFiles()
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]string{"": ""}
			for name, x := range files {
				all[name] = string(x)
			}
			c.do(all)
			k := keep(t)
			for name, x := range all {
				e := trace.Event{Kind: trace.KindFile, Unit: name, Text: base64.StdEncoding.EncodeToString([]byte(x))}
				switch name {
				case "":
					e = trace.Event{Kind: trace.KindRefusal, Text: x}
				case "damage":
					e = trace.Event{Kind: trace.KindRefusal, What: "empty", Text: "torn"}
				case checkpoint.ManifestName:
					e.Text = x
				case "raw":
					continue
				}
				if _, raw := all["raw"]; raw && name == checkpoint.FileName(1) {
					e.Text = "?"
				}
				k.add(0, e)
			}
			k.drop(func(e *trace.Event) bool { return e.Kind == trace.KindFile && e.Bytes > 0 })
			if strings.HasPrefix(c.name, "simulated") { // of one rank: that is enough
				k.Origins = map[int]trace.Origin{len(k.Ranks) - 1: {Backend: "cuda-sm_80-simulated"}}
			}
			r := judged(t, 8, &k.History)
			comes(t, r, c.want, c.says)
			if c.name == "a byte" {
				if got, err := strconv.Unquote(r.Findings[0].Got); err != nil || len(got) != 16 || got == r.Findings[0].Want {
					t.Errorf("shown is %q (%v), want 16 bytes from the one that differs on", got, err)
				}
			}
		})
	}
}

// mark is the manifest with the mark of simulated devices.
func mark(all map[string]string) string {
	return strings.Replace(all[checkpoint.ManifestName], "\n ]\n}\n", "\n ],\n \"simulated\": true\n}\n", 1)
}
