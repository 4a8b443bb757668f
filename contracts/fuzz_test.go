package contracts

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// small is the history of a short run of a small model on two ranks, as files.
func small(f *testing.F) [2][]byte {
	f.Helper()
	c, err := spec.Preset("nano")
	if err != nil {
		f.Fatal(err)
	}
	c.Model.Layers, c.Model.SeqLen, c.Sequences, c.Steps = 1, 2, 8, 1
	c.Plan, c.Recording = plan.Plan{DP: 2}, spec.Recording{Digests: true}
	out, err := launch.Local(f.Context(), c, data.Default(), launch.Parts{Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }})
	if err != nil {
		f.Fatal(err)
	}
	var files [2][]byte
	for rank, l := range out.Logs {
		var b bytes.Buffer
		if err := l.Write(&b); err != nil {
			f.Fatal(err)
		}
		files[rank] = b.Bytes()
	}
	return files
}

// FuzzHistory: whatever the history of one rank says beside that of a good one,
// it is judged or refused, in bounded time and memory.
func FuzzHistory(f *testing.F) {
	good := small(f)
	f.Add(good[1])
	head, _, _ := bytes.Cut(good[1], []byte("\n"))
	f.Add(head)
	for _, from := range []string{`"steps":1`, `"world":2`, `"layers":1`, `"vocab":256`} {
		f.Add(bytes.Replace(head, []byte(from), append([]byte(from), "00000"...), 1))
	}
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "0000"+trace.Extension), good[0], 0o644); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, "0001"+trace.Extension), b, 0o644); err != nil {
			t.Fatal(err)
		}
		const most = 20 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		begun := time.Now()
		r, err := JudgeHistories(ctx, []string{dir}, All(), Options{})
		if d := time.Since(begun); d > most {
			t.Errorf("took %s", d)
		}
		if (r == nil) == (err == nil) {
			t.Errorf("report %v, error %v", r != nil, err)
		}
	})
}
