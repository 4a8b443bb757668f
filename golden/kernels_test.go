package golden_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// computed is what package ref gives in the cases of a level, or of all where it
// is 0.
func computed(t *testing.T, level int) *golden.KernelResults {
	t.Helper()
	out, definition := &golden.KernelResults{Arithmetic: kernels.Arithmetic}, ref.New[float32]()
	for _, c := range drill.Cases(drill.Options{Seed: golden.KernelSeed, Level: level}) {
		if c.Kernel == drill.Memory || c.Kernel == drill.Misuse {
			continue
		}
		e, err := c.Expect(definition)
		if err != nil {
			t.Fatal(err)
		}
		i := len(out.Results) - 1
		for ; i >= 0 && (out.Results[i].Kernel != c.Kernel || out.Results[i].Level != c.Level); i-- {
		}
		if i < 0 {
			i = len(out.Results)
			out.Results = append(out.Results, golden.KernelResult{Kernel: c.Kernel, Level: c.Level})
		}
		out.Results[i].Cases++
		out.Results[i].Digest.Add(e.Digest)
	}
	return out
}

// TestKernels: package ref gives the recorded results, on this machine and as it
// was compiled here.
func TestKernels(t *testing.T) {
	if *update {
		all := computed(t, 0)
		if err := trace.WriteFile("kernels.txt", func(w io.Writer) error { return all.Format(w) }); err != nil {
			t.Fatal(err)
		}
		return
	}
	if race.Enabled {
		t.Skip("arithmetic of one goroutine, twenty times as slow; checked without the race detector")
	}
	want, err := golden.LoadKernels()
	if err != nil {
		t.Fatal(err)
	}
	first := &golden.KernelResults{Arithmetic: want.Arithmetic}
	for _, r := range want.Results {
		if r.Level == 1 {
			first.Results = append(first.Results, r)
		}
	}
	if d := cmp.Diff(first, computed(t, 1)); d != "" {
		t.Error(d)
	}
}

// TestKernelResults: sums over levels, of exactly the cases that are recorded and
// of no other arithmetic.
func TestKernelResults(t *testing.T) {
	k := &golden.KernelResults{Arithmetic: 2, Results: []golden.KernelResult{
		{Kernel: "Add", Level: 1, Cases: 3, Digest: kernels.Digest{A: 1, B: 2}},
		{Kernel: "Add", Level: 2, Cases: 4, Digest: kernels.Digest{A: 10, B: 20, NonFinite: 7}},
		{Kernel: "Copy", Level: 1, Cases: 1, Digest: kernels.Digest{A: 5}},
	}}
	for _, c := range []struct {
		kernel                   string
		level, cases, arithmetic int
		want                     kernels.Digest
		ok                       bool
	}{
		{"Add", 1, 3, 2, kernels.Digest{A: 1, B: 2}, true},
		{"Add", 2, 7, 2, kernels.Digest{A: 11, B: 22, NonFinite: 7}, true},
		{"Add", 2, 3, 2, kernels.Digest{}, false},
		{"Add", 1, 3, 3, kernels.Digest{}, false},
		{"Scale", 1, 0, 2, kernels.Digest{}, false},
	} {
		if d, ok := k.Of(c.kernel, c.level, c.cases, c.arithmetic); ok != c.ok || ok && d != c.want {
			t.Errorf("%+v: %v, %t", c, d, ok)
		}
	}
	var b bytes.Buffer
	if err := k.Format(&b); err != nil {
		t.Fatal(err)
	}
	if got, err := golden.ParseKernels(bytes.NewReader(b.Bytes())); err != nil || !cmp.Equal(got, k) {
		t.Errorf("what was written reads as %v, %v", got, err)
	}
	for _, c := range []struct{ old, with, says string }{
		{"arithmetic 2\n", "", "line 3"},
		{"Add 2 4", "Add 1 4", "line 5: \"Add 1 4"},
		{"Copy 1 1", "Copy 1 0", "line 6"},
		{"Copy 1 1 0", "Copy 1 1 x", "line 6"},
		{b.String(), "arithmetic 2\n", "no results"},
	} {
		text := strings.Replace(b.String(), c.old, c.with, 1)
		if _, err := golden.ParseKernels(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q for %q: error %v, want one with %q", c.with, c.old, err, c.says)
		}
	}
}
