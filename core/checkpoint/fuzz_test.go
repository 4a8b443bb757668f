package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzManifest: no manifest beside good files makes the readers panic, hang or
// allocate beyond the files, and what is accepted can be read.
func FuzzManifest(f *testing.F) {
	root := f.TempDir()
	store(f, root)
	dir := filepath.Join(root, DirName(3))
	good, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	rects, _ := grid()
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, ManifestName), b, 0o644); err != nil {
			t.Fatal(err)
		}
		steps, err := List(root)
		if err != nil || len(steps) != 1 {
			t.Fatalf("%d steps, %v", len(steps), err)
		}
		c, err := Open(root)
		if err != nil {
			return
		}
		defer c.Close()
		if steps[0].Err != nil {
			t.Errorf("opened, but listed as none: %v", steps[0].Err)
		}
		for _, r := range rects {
			_ = c.Read(r, make([]float32, r.Len())) // a manifest may leave files out
		}
	})
}
