package independent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// stored runs two steps of a fixture under a plan and gives the checkpoint's
// directory and the run.
func stored(t testing.TB, name, plan string, change func(*spec.Config)) (string, *recording) {
	t.Helper()
	c := preset(t, name, change)
	c.Steps = 2
	withPlan(t, &c, plan)
	root := t.TempDir()
	out, err := launch.Local(context.Background(), c, data.Default(), launch.Parts{
		Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{}) },
		Hooks:   train.Hooks{Checkpoints: train.Checkpoints{Dir: root}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{h: out.History}
	if r.cfg, err = spec.Of(out.History.Header.Spec); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, checkpoint.DirName(2)), r
}

// Under every plan a checkpoint holds the tensors that a run without a plan ends
// with, each with the digest of its name, and its manifest's.
func TestCheckpointsOfEveryPlan(t *testing.T) {
	for _, c := range []struct {
		name, optimizer string
		plans           []string
	}{
		{"nano", "adamw", []string{"", "dp=4,zero=3", "tp=2,pp=2", "dp=2,zero=1", "dp=2,zero=2,tp=2", "tp=4,vocab=parallel", "dp=4,zero=3,shard=tensors"}},
		{"odd", "sgd", []string{"", "dp=4,zero=3", "tp=2,pp=2", "tp=4", "pp=2,schedule=interleaved,virtual=2", "dp=2,tp=4"}},
	} {
		change := func(x *spec.Config) { x.Optimizer.Name = c.optimizer }
		_, plain := stored(t, c.name, "", change)
		s, o := shape(plain.cfg.Model), optimizer(plain.cfg.Optimizer)
		for _, plan := range race.Some(4, c.plans) {
			dir, _ := stored(t, c.name, plan, change)
			got, err := independent.OpenCheckpoint(dir, s.Params(), o.Moments())
			if err != nil {
				t.Errorf("%s %s: %v", c.name, plan, err)
				continue
			}
			if err := agrees(got); err != nil {
				t.Errorf("%s %s: %v", c.name, plan, err)
			}
			if got.Step != 2 || got.Counter != 2 || got.Arithmetic != kernels.Arithmetic || got.Schema != checkpoint.Schema || len(got.Spec) == 0 {
				t.Errorf("%s %s: %+v", c.name, plan, got)
			}
			if len(got.Tensors) != 1+len(o.Moments()) {
				t.Errorf("%s %s: kinds %v", c.name, plan, slices.Sorted(maps.Keys(got.Tensors)))
			}
			for kind, tensors := range got.Tensors {
				sameTensors(t, c.name+" "+plan+" "+kind, plain, kind, tensors)
			}
		}
	}
}

// agrees compares the digest of each kind's tensors with the manifest's.
func agrees(c *independent.Checkpoint) error {
	for kind := range c.Tensors {
		if got := c.Digest(kind).String(); got != c.Digests[kind] {
			return fmt.Errorf("the elements of %s have the digest %s, the manifest says %q", kind, got, c.Digests[kind])
		}
	}
	return nil
}

func sameTensors(t *testing.T, what string, r *recording, kind string, got map[string][]float32) {
	t.Helper()
	want := r.captured(t, 1, kind)
	if len(got) != len(want) {
		t.Errorf("%s: %d tensors, want %d", what, len(got), len(want))
	}
	recorded := map[string]string{}
	for e := range r.h.All {
		if e.Kind == trace.KindDigest && e.Step == 1 && e.What == kind && e.Once {
			text, err := e.Digest.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			recorded[e.Tensor] = string(text)
		}
	}
	for name, x := range got {
		for i := range x {
			if math.Float32bits(x[i]) != math.Float32bits(want[name][i]) {
				t.Fatalf("%s: %s[%d] is %v, want %v", what, name, i, x[i], want[name][i])
			}
		}
		var d independent.Digest
		d.Add(name, 0, x)
		if d.String() != recorded[name] {
			t.Errorf("%s: %s has the digest %s, recorded is %s", what, name, d, recorded[name])
		}
	}
}

// A damaged checkpoint is refused by name, also where its SHA-256 was repaired.
func TestDamagedCheckpoints(t *testing.T) {
	dir, r := stored(t, "nano", "dp=2,zero=1", nil)
	s, o := shape(r.cfg.Model), optimizer(r.cfg.Optimizer)
	open := func(dir string) error {
		c, err := independent.OpenCheckpoint(dir, s.Params(), o.Moments())
		if err == nil {
			err = agrees(c)
		}
		return err
	}
	if err := open(dir); err != nil {
		t.Fatal(err)
	}
	file := checkpoint.FileName(1)
	name := "model.layers.3.self_attn.q_proj.weight"
	for _, c := range []struct {
		what   string
		damage func(t *testing.T, dir string)
		says   string
	}{
		{"no manifest", func(t *testing.T, dir string) { remove(t, dir, checkpoint.ManifestName) }, "no such file"},
		{"no file", func(t *testing.T, dir string) { remove(t, dir, file) }, file},
		{"cut", func(t *testing.T, dir string) {
			edit(t, dir, file, func(b []byte) []byte { return b[:len(b)-4] }, false)
		}, file},
		{"a bit", func(t *testing.T, dir string) { edit(t, dir, file, flip, false) }, "SHA-256"},
		{"a bit, repaired", func(t *testing.T, dir string) { edit(t, dir, file, flip, true) }, "digest"},
		{"cut, repaired", func(t *testing.T, dir string) {
			edit(t, dir, file, func(b []byte) []byte { return b[:len(b)-4] }, true)
		}, file},
		{"longer, repaired", func(t *testing.T, dir string) {
			edit(t, dir, file, func(b []byte) []byte { return append(b, 0, 0, 0, 0) }, true)
		}, file},
		{"renamed, repaired", func(t *testing.T, dir string) {
			edit(t, dir, file, swap("m/"+name, "m/"+strings.Replace(name, "q_", "z_", 1)), true)
		}, "no such parameter"},
		{"another kind, repaired", func(t *testing.T, dir string) { edit(t, dir, file, swap(`"m/`, `"n/`), true) }, "kinds are"},
		{"two names exchanged, repaired", func(t *testing.T, dir string) {
			edit(t, dir, file, exchange("m/model.layers.3.mlp.gate_proj.weight", "m/model.layers.3.mlp.up_proj.weight"), true)
		}, "digest"},
		{"another step, repaired", func(t *testing.T, dir string) { edit(t, dir, file, swap(`"step":"2"`, `"step":"3"`), true) }, "step"},
		{"the other rank's", func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, checkpoint.FileName(0)))
			if err != nil {
				t.Fatal(err)
			}
			edit(t, dir, file, func([]byte) []byte { return b }, true)
		}, "stored twice"},
		{"a file left out", func(t *testing.T, dir string) {
			manifest(t, dir, func(m *checkpoint.Manifest) { m.Files = m.Files[:1] })
		}, "missing"},
		{"a file twice", func(t *testing.T, dir string) {
			manifest(t, dir, func(m *checkpoint.Manifest) { m.Files = append(m.Files, m.Files[1]) })
		}, "listed twice"},
		{"metadata more, repaired", func(t *testing.T, dir string) {
			edit(t, dir, file, header(`"counter":"2"`, `"counter":"2","more":"1"`), true)
		}, "more"},
		{"metadata twice, repaired", func(t *testing.T, dir string) {
			edit(t, dir, file, header(`"counter":"2"`, `"counter":"1","counter":"2"`), true)
		}, "twice"},
		{"a link", func(t *testing.T, dir string) { link(t, dir, file) }, "regular"},
		{"a link for the manifest", func(t *testing.T, dir string) { link(t, dir, checkpoint.ManifestName) }, "regular"},
		{"a field of the manifest twice", func(t *testing.T, dir string) {
			edit(t, dir, checkpoint.ManifestName, swap(`"counter"`, `"step": 3, "counter"`), false)
		}, "twice"},
		{"a field of the configuration twice", func(t *testing.T, dir string) {
			edit(t, dir, checkpoint.ManifestName, swap(`"seed"`, `"SEED": 3, "seed"`), false)
		}, "twice"},
		{"a field more", func(t *testing.T, dir string) {
			edit(t, dir, checkpoint.ManifestName, swap(`"counter"`, `"world": 3, "counter"`), false)
		}, "world"},
		{"a field less", func(t *testing.T, dir string) {
			edit(t, dir, checkpoint.ManifestName, swap(`"arithmetic": 2,`, ``), false)
		}, "6 fields"},
		{"a field of a file more", func(t *testing.T, dir string) {
			edit(t, dir, checkpoint.ManifestName, swap(`"bytes"`, `"rank": 3, "bytes"`), false)
		}, "rank"},
		{"something after the manifest", func(t *testing.T, dir string) {
			edit(t, dir, checkpoint.ManifestName, func(b []byte) []byte { return append(b, "{}"...) }, false)
		}, "after"},
		{"a directory of another step", func(t *testing.T, dir string) {
			edit(t, dir, checkpoint.ManifestName, swap(`"step": 2`, `"step": 1`), false)
		}, "is of step 1"},
		{"outside", func(t *testing.T, dir string) {
			manifest(t, dir, func(m *checkpoint.Manifest) { m.Files[1].Name = "../" + file })
		}, "within the checkpoint"},
		{"a digest", func(t *testing.T, dir string) {
			manifest(t, dir, func(m *checkpoint.Manifest) { d := m.Digests["v"]; d.B++; m.Digests["v"] = d })
		}, "digest"},
	} {
		t.Run(c.what, func(t *testing.T) {
			other := filepath.Join(t.TempDir(), filepath.Base(dir))
			if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			c.damage(t, other)
			if err := open(other); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want an error with %q", err, c.says)
			}
		})
	}
	marked := filepath.Join(t.TempDir(), filepath.Base(dir))
	if err := os.CopyFS(marked, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	edit(t, marked, checkpoint.ManifestName, swap(`"counter"`, `"simulated": true, "counter"`), false)
	if err := open(marked); err != nil { // by simulated devices, and no worse for that
		t.Error(err)
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// link moves a file away and leaves a link to it.
func link(t *testing.T, dir, name string) {
	t.Helper()
	aside := filepath.Join(t.TempDir(), name)
	if err := os.Rename(filepath.Join(dir, name), aside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(aside, filepath.Join(dir, name)); err != nil {
		t.Skip(err)
	}
}

// flip changes one bit of the last element.
func flip(b []byte) []byte { b[len(b)-3] ^= 1; return b }

// swap replaces old, of the same length, wherever it is.
func swap(old, with string) func([]byte) []byte {
	return func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(old), []byte(with)) }
}

// exchange swaps two names in the header.
func exchange(x, y string) func([]byte) []byte { return header(x, y, y, x) }

// header replaces in the header, whose length may change.
func header(oldnew ...string) func([]byte) []byte {
	return func(b []byte) []byte {
		n := binary.LittleEndian.Uint64(b)
		h := strings.NewReplacer(oldnew...).Replace(string(b[8 : 8+n]))
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), b[8+n:]...)
	}
}

// edit changes a file and, where it is to be repaired, its manifest's entry.
func edit(t *testing.T, dir, name string, change func([]byte) []byte, repaired bool) {
	t.Helper()
	path := filepath.Join(dir, name)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := change(bytes.Clone(old))
	if bytes.Equal(b, old) {
		t.Fatal("the damage changed nothing")
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if repaired {
		manifest(t, dir, func(m *checkpoint.Manifest) {
			i := slices.IndexFunc(m.Files, func(f checkpoint.File) bool { return f.Name == name })
			h := sha256.Sum256(b)
			m.Files[i].Bytes, m.Files[i].SHA256 = int64(len(b)), hex.EncodeToString(h[:])
		})
	}
}

func manifest(t *testing.T, dir string, change func(*checkpoint.Manifest)) {
	t.Helper()
	path := filepath.Join(dir, checkpoint.ManifestName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var m checkpoint.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	change(&m)
	if b, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// sample is a file of two pieces.
func sample(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	rects := []checkpoint.Rect{{What: "weight", Tensor: "t"}, {What: "m", Tensor: "t"}}
	rects[0].R.Hi, rects[0].C.Hi, rects[1].R.Hi, rects[1].C.Lo, rects[1].C.Hi = 2, 3, 1, 2, 4
	x := [][]float32{{1, 2, 3, 4, 5, 6}, {7, 8}}
	if err := checkpoint.Write(&b, rects, map[string]string{"k": "v"}, func(i int) ([]float32, error) { return x[i], nil }); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Headers that lie are refused.
func TestSafetensorsRefuses(t *testing.T) {
	good := sample(t)
	pieces, meta, err := independent.ReadSafetensors(bytes.NewReader(good), int64(len(good)))
	if err != nil || len(pieces) != 2 || meta["k"] != "v" || !slices.Equal(pieces[1].Data, []float32{7, 8}) || pieces[1].C0 != 2 {
		t.Fatalf("%+v %v: %v", pieces, meta, err)
	}
	n := binary.LittleEndian.Uint64(good)
	change := func(old, with string) []byte {
		h := strings.Replace(string(good[8:8+n]), old, with, 1)
		if h == string(good[8:8+n]) {
			t.Fatalf("the header has no %s: %s", old, h)
		}
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), good[8+n:]...)
	}
	blanks := change("}}", " }\n} ")
	if again, _, err := independent.ReadSafetensors(bytes.NewReader(blanks), int64(len(blanks))); err != nil || len(again) != 2 {
		t.Errorf("white space between tokens and behind them says nothing: %v", err)
	}
	sizes := func(b []byte) []byte {
		return bytes.Replace(bytes.Replace(b, []byte("[0,24]"), []byte("[0,28]"), 1), []byte("[24,32]"), []byte("[28,32]"), 1)
	}
	length := func(n uint64) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), good[8:]...) }
	for name, b := range map[string][]byte{
		"empty": nil, "seven bytes": good[:7], "length alone": good[:8], "huge": length(1 << 63), "beyond": length(uint64(len(good))), "most": length(math.MaxUint64),
		"cut": good[:len(good)-1], "more": append(bytes.Clone(good), 0), "no object": change("{", "["), "type": change("F32", "F16"),
		"shape": change("[2,3]", "[3,2]"), "three sides": change("[2,3]", "[2,3,1]"), "name": change("weight/t[", "weight/t("), "no kind": change("weight/t", "/t"),
		"empty range": change("[0:2,0:3]", "[2:2,0:3]"), "descending": change("[0:2,0:3]", "[2:0,0:3]"), "negative": change("[0:2,0:3]", "[-1:1,0:3]"),
		"huge range": change("[0:2,0:3]", "[0:2147483647,0:2147483647]"), "gap": change("[0,24]", "[4,28]"), "overlap": change("[24,32]", "[20,28]"),
		"before": change("[0,24]", "[-24,0]"), "one offset": change("[0,24]", "[0]"), "three offsets": change("[0,24]", "[0,24,24]"), "overflow": change("[0,24]", "[9223372036854775804,-9223372036854775788]"),
		"unknown field": change(`"dtype"`, `"x":1,"dtype"`), "twice": change("m/t[0:1,2:4]", "weight/t[0:2,0:3]"), "after": change("}}", "}} x"),
		"a blank before": change("{", " {"), "no header": append(make([]byte, 8), good[8+n:]...), "metadata twice": change(`"k":"v"`, `"k":"u","k":"v"`),
		"metadata again": change(`"m/t[`, `"__metadata__":{"k":"v"},"m/t[`), "a field twice": change(`"dtype":"F32"`, `"dtype":"F32","dtype":"F32"`),
		"another case": change(`"dtype"`, `"DType"`), "no shape": change(`"shape":[2,3],`, ""), "of the same size": change("F32", "I32"), "an entry less": change(`"m/t[0:1,2:4]":{"dtype":"F32","shape":[1,2],"data_offsets":[24,32]},`, ""),
		"other sizes": sizes(bytes.Clone(good)), "open": change("[0:2,0:3]", "[0:2,0:3"), "no rows": change(`"m/t[`, `"v/t[0:0,0:1]":{"dtype":"F32","shape":[0,1],"data_offsets":[0,0]},"m/t[`),
		"fraction": change("[2,3]", "[2.5,3]"), "metadata": change(`{"k":"v"}`, `{"k":1}`),
	} {
		if p, _, err := independent.ReadSafetensors(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("%s: accepted as %+v", name, p)
		}
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		pieces, _, err := independent.ReadSafetensors(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		n := 0
		for _, p := range pieces {
			if len(p.Data) != (p.R1-p.R0)*(p.C1-p.C0) || p.R0 < 0 || p.C0 < 0 {
				t.Fatalf("%+v", p)
			}
			n += 4 * len(p.Data)
		}
		if n > len(b) {
			t.Fatalf("%d bytes of elements in a file of %d", n, len(b))
		}
	})
}
