//go:build cuda

package cuda

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// TestLoad: PTX that has not the kernels which are launched, each once and with its number
// of threads, is refused when it is loaded, and the error names the kernel.
func TestLoad(t *testing.T) {
	d := opened(t).Device()
	ships := func() fstest.MapFS {
		out := fstest.MapFS{}
		for _, name := range must(fs.Glob(shipped, "ptx/*.ptx"))(t) {
			out[strings.TrimPrefix(name, "ptx/")] = &fstest.MapFile{Data: must(fs.ReadFile(shipped, name))(t)}
		}
		return out
	}
	edit := func(from, to string) func(fstest.MapFS) {
		return func(files fstest.MapFS) {
			f := files["vector.ptx"]
			text := strings.Replace(string(f.Data), from, to, 1)
			if text == string(f.Data) {
				t.Fatalf("vector.ptx has no %q", from)
			}
			f.Data = []byte(text)
		}
	}
	for name, c := range map[string]struct {
		change func(fstest.MapFS)
		want   string
	}{
		"no files":     {func(f fstest.MapFS) { clear(f) }, "kernels of 0 files of PTX: adamw, which is launched, is in none"},
		"one file":     {func(f fstest.MapFS) { delete(f, "product.ptx") }, "product_nn_128x128, which is launched, is in none"},
		"another name": {edit(".entry fill(", ".entry filled("), "kernels of vector.ptx: filled: is none that is launched"},
		"no threads":   {edit(".maxntid 256, 1, 1\n", ""), "kernels of vector.ptx: fill: has no .maxntid"},
		"twice":        {func(f fstest.MapFS) { f["vectors.ptx"] = f["vector.ptx"] }, "kernels of vectors.ptx: fill: is in another file too"},
		"no parameter": {edit(".entry fill(", ".entry fill(.param .u64,"), `kernels of vector.ptx: load of PTX on `},
	} {
		files := ships()
		c.change(files)
		before := d.Live()
		b, err := NewOf(d, files)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err == nil {
			_ = b.Close()
		}
		if after := d.Live(); after != before {
			t.Errorf("%s: %s are left", name, after)
		}
	}
}

// must is for calls whose errors no test is about.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
