package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// grid is a 5 x 7 tensor whose element (i, j) is 10i+j, cut into rectangles.
func grid() (rects []Rect, data [][]float32) {
	for _, r := range []Rect{
		{"weight", "t", shard.Range{Lo: 0, Hi: 2}, shard.Range{Lo: 0, Hi: 7}},
		{"weight", "t", shard.Range{Lo: 2, Hi: 3}, shard.Range{Lo: 0, Hi: 3}},
		{"weight", "t", shard.Range{Lo: 2, Hi: 3}, shard.Range{Lo: 3, Hi: 7}},
		{"weight", "t", shard.Range{Lo: 3, Hi: 5}, shard.Range{Lo: 0, Hi: 7}},
		{"m", "t", shard.Range{Lo: 0, Hi: 1}, shard.Range{Lo: 0, Hi: 1}},
	} {
		var x []float32
		for i := r.R.Lo; i < r.R.Hi; i++ {
			for j := r.C.Lo; j < r.C.Hi; j++ {
				x = append(x, float32(10*i+j))
			}
		}
		rects, data = append(rects, r), append(data, x)
	}
	return rects, data
}

// store writes the grid as a checkpoint of two files.
func store(t testing.TB, root string) {
	t.Helper()
	rects, data := grid()
	m := Manifest{Schema: Schema, Arithmetic: kernels.Arithmetic, Step: 3, Counter: 2}
	for rank, part := range [][2]int{{0, 2}, {2, 5}} {
		f, err := Save(Pending(root, 3), rank, rects[part[0]:part[1]], Metadata(3, 2),
			func(i int) ([]float32, error) { return data[part[0]+i], nil })
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, f)
	}
	if err := Complete(root, m); err != nil {
		t.Fatal(err)
	}
}

func TestAnyRectangleComesBack(t *testing.T) {
	root := t.TempDir()
	store(t, root)
	c, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Manifest.Step != 3 || c.Manifest.Counter != 2 {
		t.Errorf("manifest: %+v", c.Manifest)
	}
	for r0 := range 5 {
		for r1 := r0 + 1; r1 <= 5; r1++ {
			for c0 := range 7 {
				for c1 := c0 + 1; c1 <= 7; c1++ {
					want := Rect{"weight", "t", shard.Range{Lo: r0, Hi: r1}, shard.Range{Lo: c0, Hi: c1}}
					got := make([]float32, want.Len())
					if err := c.Read(want, got); err != nil {
						t.Fatal(err)
					}
					for e, v := range got {
						if i, j := r0+e/(c1-c0), c0+e%(c1-c0); v != float32(10*i+j) {
							t.Fatalf("%v: element (%d,%d) is %v", want, i, j, v)
						}
					}
				}
			}
		}
	}
	for _, missing := range []Rect{
		{"weight", "t", shard.Range{Lo: 4, Hi: 6}, shard.Range{Lo: 0, Hi: 1}},
		{"weight", "u", shard.Range{Lo: 0, Hi: 1}, shard.Range{Lo: 0, Hi: 1}},
		{"v", "t", shard.Range{Lo: 0, Hi: 1}, shard.Range{Lo: 0, Hi: 1}},
	} {
		if err := c.Read(missing, make([]float32, missing.Len())); err == nil || !strings.Contains(err.Error(), missing.String()) {
			t.Errorf("%v: %v", missing, err)
		}
	}
}

func TestManifestRefusals(t *testing.T) {
	for _, c := range []struct{ old, new, says string }{
		{Schema, "lockstep/checkpoint/v0", "schema"},
		{`"arithmetic": 2`, `"arithmetic": 1`, "arithmetic version 1"},
		{`"counter": 2`, `"counter": 4`, "counter 4"},
		{FileName(0), "../" + FileName(0), "must not leave"},
		{`"step": 3`, `"step": 2`, "named after another step"},
		{`"step": 3`, `"step": 3, "step": 3`, `"step" is there twice`},
		{`"step": 3`, `"step": 3, "Step": 3`, `unknown field "Step"`},
		{`"step": 3`, `"Step": 3`, `unknown field "Step"`},
		{`"step": 3,`, ``, `no field "step"`},
		{`"spec": null`, `"spec": {"a":{"seed":1,"seed":2}}`, `"seed" is there twice`},
		{`"spec": null`, `"spec": [{"seed":1,"SEED":2}]`, `"SEED" is there twice`},
		{`"spec": null`, `"spec": null, "more": 1`, `unknown field "more"`},
		{`"bytes"`, `"Bytes"`, `unknown field "Bytes"`},
		{"\n}\n", "\n}\n{}", "after top-level value"},
		{FileName(1), FileName(0), FileName(0) + " is listed twice"},
		{`"counter": 2`, `"counter": 1`, `says counter "2", the manifest "1"`},
	} {
		root := t.TempDir()
		store(t, root)
		path := filepath.Join(root, DirName(3), ManifestName)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte(c.old)) {
			t.Fatalf("the manifest has no %s", c.old)
		}
		if err := os.WriteFile(path, bytes.Replace(b, []byte(c.old), []byte(c.new), 1), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(root); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s for %s: %v", c.new, c.old, err)
		}
	}
}

// White space between the tokens of a manifest says nothing.
func TestManifestBlanks(t *testing.T) {
	root := t.TempDir()
	store(t, root)
	path := filepath.Join(root, DirName(3), ManifestName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	more := bytes.ReplaceAll(b, []byte(":"), []byte(" :\r\n\t"))
	if err := os.WriteFile(path, slices.Concat([]byte(" \n"), more, []byte("  \n\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if c.Manifest.Step != 3 || len(c.files) != 2 {
		t.Errorf("%+v", c.Manifest)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// What stands for a file must be one: a link to the same bytes and a pipe, which
// would never end, are refused by name.
func TestFilesAreRegular(t *testing.T) {
	for _, name := range []string{FileName(1), ManifestName} {
		root := t.TempDir()
		store(t, root)
		path := filepath.Join(root, DirName(3), name)
		aside := filepath.Join(root, "aside")
		if err := os.Rename(path, aside); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(aside, path); err != nil {
			t.Skip(err)
		}
		if _, err := Open(filepath.Join(root, DirName(3))); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "regular") {
			t.Errorf("a link as %s: %v", name, err)
		}
	}
}

// A file that another host has stored, in a directory that it does not share, is named,
// and what must be so.
func TestMissingFile(t *testing.T) {
	root := t.TempDir()
	store(t, root)
	if err := os.Remove(filepath.Join(root, DirName(3), FileName(1))); err != nil {
		t.Fatal(err)
	}
	_, err := Open(root)
	want := filepath.Join(root, DirName(3), ManifestName) + " lists " + FileName(1) + ", which is not here: ranks of several hosts must store in a directory that all of them share"
	if err == nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestStoredTwice cuts one tensor into rectangles in two files.
func TestStoredTwice(t *testing.T) {
	rect := func(r0, r1, c0, c1 int) Rect {
		return Rect{"weight", "t", shard.Range{Lo: r0, Hi: r1}, shard.Range{Lo: c0, Hi: c1}}
	}
	other := func(r Rect, what, tensor string) Rect { r.What, r.Tensor = what, tensor; return r }
	whole := []Rect{rect(0, 4, 0, 4)}
	for _, c := range []struct {
		name        string
		one, two    []Rect
		says, holds string
	}{
		{"halves", []Rect{rect(0, 2, 0, 4)}, []Rect{rect(2, 4, 0, 4)}, "", ""},
		{"quarters", []Rect{rect(0, 2, 0, 2), rect(2, 4, 2, 4)}, []Rect{rect(2, 4, 0, 2), rect(0, 2, 2, 4)}, "", ""},
		{"the same in both", whole, whole, "stored twice", ""},
		{"a row in both", []Rect{rect(0, 3, 0, 4)}, []Rect{rect(2, 4, 0, 4)}, "stored twice", ""},
		{"a column in both", []Rect{rect(0, 4, 0, 3)}, []Rect{rect(0, 4, 2, 4)}, "stored twice", ""},
		{"one element twice, one missing", []Rect{rect(0, 2, 0, 4), rect(1, 2, 3, 4)}, []Rect{rect(2, 3, 0, 4), rect(3, 4, 0, 3)}, "stored twice", ""},
		{"behind one that has ended", []Rect{rect(0, 4, 0, 1), rect(0, 1, 1, 4)}, []Rect{rect(1, 4, 1, 4), rect(3, 4, 0, 1)}, "stored twice", ""},
		{"another kind", whole, []Rect{other(whole[0], "m", "t")}, "", "is of no tensor"},
		{"another tensor", whole, []Rect{other(whole[0], "weight", "u")}, "", "is of no tensor"},
		{"more rows", whole, []Rect{rect(4, 5, 0, 4)}, "", "is of no tensor"},
		{"more columns", whole, []Rect{rect(0, 4, 4, 5)}, "", "is of no tensor"},
		{"less", []Rect{rect(0, 4, 0, 3)}, nil, "", "12 of 16 elements"},
	} {
		root := t.TempDir()
		m := Manifest{Schema: Schema, Arithmetic: kernels.Arithmetic, Step: 1, Digests: map[string]kernels.Digest{"weight": {}}}
		for rank, rects := range [][]Rect{c.one, c.two} {
			f, err := Save(Pending(root, 1), rank, rects, Metadata(1, 0), func(i int) ([]float32, error) { return make([]float32, rects[i].Len()), nil })
			if err != nil {
				t.Fatal(err)
			}
			m.Files = append(m.Files, f)
		}
		if err := Complete(root, m); err != nil {
			t.Fatal(err)
		}
		ck, err := Open(root)
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), FileName(1)) && !strings.Contains(err.Error(), FileName(0))) {
			t.Errorf("%s: %v, want %q and the file", c.name, err, c.says)
		}
		if err != nil {
			continue
		}
		if err := ck.Holds(whole); (err == nil) != (c.holds == "") || err != nil && !strings.Contains(err.Error(), c.holds) {
			t.Errorf("%s: %v, want %q", c.name, err, c.holds)
		}
		ck.Manifest.Digests["v"] = kernels.Digest{}
		if err := ck.Holds(whole); err == nil {
			t.Errorf("%s: a digest of another kind is accepted", c.name)
		}
		ck.Manifest.Digests = nil
		if err := ck.Holds(whole); err == nil {
			t.Errorf("%s: no digest is accepted", c.name)
		}
		if err := ck.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReplacedAndLatest(t *testing.T) {
	root := filepath.Join(t.TempDir(), "run[1]") // no pattern
	store(t, root)
	store(t, root) // the same step again
	f, err := Save(Pending(root, 12), 0, nil, Metadata(12, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Complete(root, Manifest{Schema: Schema, Arithmetic: kernels.Arithmetic, Step: 12, Files: []File{f}}); err != nil {
		t.Fatal(err)
	}
	c, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Manifest.Step != 12 {
		t.Errorf("opened step %d, want the latest, 12", c.Manifest.Step)
	}
	left, err := filepath.Glob(filepath.Join(root, ".tmp*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// sample is a good file.
func sample(t testing.TB) []byte {
	rects, data := grid()
	var b bytes.Buffer
	if err := Write(&b, rects, nil, func(i int) ([]float32, error) { return data[i], nil }); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHeaderRefusals(t *testing.T) {
	good := sample(t)
	n := binary.LittleEndian.Uint64(good)
	huge := slices.Clone(good)
	binary.LittleEndian.PutUint64(huge, 1<<62)
	edit := func(old, new string) []byte {
		h := bytes.Replace(good[8:8+n], []byte(old), []byte(new), 1)
		if bytes.Equal(h, good[8:8+n]) {
			t.Fatalf("the header has no %s", old)
		}
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), good[8+n:]...)
	}
	spaced := edit("}}", " } }  ")
	if _, err := readHeader(bytes.NewReader(spaced), int64(len(spaced))); err != nil {
		t.Fatalf("white space between tokens and behind them says nothing: %v", err)
	}
	for name, b := range map[string][]byte{
		"empty": nil, "seven bytes": good[:7], "half a header": good[:20], "huge header": huge,
		"cut data": good[:len(good)-1], "more data": append(slices.Clone(good), 0),
		"dtype": edit("F32", "F64"), "shape": edit("[2,7]", "[7,2]"), "name": edit("t[0:2,0:7]", "t[0:2;0:7]"),
		"huge rectangle": edit("[0:2,0:7]", "[0:2147483648,0:7]"), "empty rectangle": edit("[0:2,0:7]", "[2:2,0:7]"), "overlap": edit(`"data_offsets":[0,56]`, `"data_offsets":[4,60]`),
		"negative": edit(`"data_offsets":[0,56]`, `"data_offsets":[-56,0]`), "no JSON": edit("{", "["),
		"a blank before": edit("{", " {"), "no header": append(make([]byte, 8), good[8+n:]...), "a gap": edit(`"data_offsets":[0,56]`, `"data_offsets":[0,52]`),
		"an entry twice": edit(`"weight/t[0:2,0:7]"`, `"weight/t[0:2,0:7]":{"dtype":"F32","shape":[2,7],"data_offsets":[0,56]},"weight/t[0:2,0:7]"`),
		"a field twice":  edit(`"dtype":"F32"`, `"dtype":"F32","dtype":"F32"`), "metadata twice": edit(`"__metadata__":null`, `"__metadata__":{"step":"1","step":"2"}`),
		"three sides": edit("[2,7]", "[2,7,1]"), "one offset": edit(`[0,56]`, `[0]`), "no shape": edit(`"shape":[2,7],`, ""), "shape null": edit(`[2,7]`, "null"),
		"another case": edit(`"dtype"`, `"DType"`), "another field": edit(`"dtype"`, `"strides":[7,1],"dtype"`), "after": edit("}}", "}} x"), "of the same size": edit("F32", "I32"),
	} {
		if x, err := readHeader(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("%s: accepted as %v", name, x.rects)
		}
	}
}

// FuzzHeader: no file makes the reader panic or allocate beyond its size.
func FuzzHeader(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := readHeader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, r := range x.rects {
			if 4*r.Len() > len(b) {
				t.Fatalf("%v is larger than the file", r)
			}
			if _, err := copyOverlap(bytes.NewReader(b), r, r.Rect, make([]float32, r.Len())); err != nil {
				t.Errorf("%v of an accepted file: %v", r.Rect, err)
			}
		}
	})
}
