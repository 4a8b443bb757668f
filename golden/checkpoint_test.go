package golden_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestCheckpoint: plain Go stores the golden checkpoint byte for byte, and a
// reader that shares nothing with the writer finds every tensor in it.
func TestCheckpoint(t *testing.T) {
	cfg, err := golden.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	_, err = launch.Local(t.Context(), cfg, data.Default(), launch.Parts{
		Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil },
		Hooks:   train.Hooks{Checkpoints: train.Checkpoints{Dir: root}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, checkpoint.DirName(golden.CheckpointSteps))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{}
	for _, e := range entries {
		if got[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(filepath.Join("checkpoint", e.Name()), got[e.Name()], 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if *update {
		return
	}
	want, err := golden.CheckpointFiles()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); d != "" {
		t.Fatalf("files: %s", d)
	}
	for name, x := range want {
		if !bytes.Equal(got[name], x) {
			t.Errorf("%s: %d bytes, want %d, of which some differ; %q records them", name, len(got[name]), len(x), golden.RecordCheckpoint)
		}
	}
	c := cfg.Model
	s := independent.Shape{Vocab: c.Vocab, Hidden: c.Hidden, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Intermediate: c.Intermediate, SeqLen: c.SeqLen, Tied: c.Tied, QKVBias: c.QKVBias}
	read, err := independent.OpenCheckpoint("checkpoint", s.Params(), []string{"m", "v"})
	if err != nil {
		t.Fatal(err)
	}
	for kind := range read.Tensors {
		if got := read.Digest(kind).String(); got != read.Digests[kind] {
			t.Errorf("the elements of %s have the digest %s, the manifest says %q", kind, got, read.Digests[kind])
		}
	}
}
