package golden_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// update records the fingerprints of all steps instead of comparing the first.
var update = flag.Bool("update", false, "record golden/fingerprints")

// compared is the number of steps that the test runs; the contract's higher
// levels compare all.
const compared = 2

func TestFingerprints(t *testing.T) {
	variants, err := golden.Variants()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			if *update {
				record(t, v)
				return
			}
			want, err := golden.LoadFingerprints(v.Name)
			if err != nil {
				t.Fatal(err)
			}
			v.Config.Steps = compared
			got := run(t, v, ref.New[float32]())
			if err := want.Comparable(got.Spec, got.Arithmetic, got.TextHash); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Steps[:compared], got.Steps); diff != "" {
				t.Error(diff)
			}
			if len(want.Steps) != golden.FingerprintSteps {
				t.Errorf("%d steps: want %d", len(want.Steps), golden.FingerprintSteps)
			}
			if n := len(want.Clipped); n == 0 || n == len(want.Steps) {
				t.Errorf("%d of %d steps are clipped: want some, not all", n, len(want.Steps))
			}
			for _, s := range got.Clipped {
				if !strings.Contains(" "+ints(want.Clipped)+" ", " "+ints([]int{s})+" ") {
					t.Errorf("step %d is clipped, which the golden run did not", s)
				}
			}
		})
	}
}

// run trains a variant on one rank.
func run(t *testing.T, v golden.Variant, b kernels.Backend) *golden.Fingerprints {
	t.Helper()
	out, err := launch.Local(t.Context(), v.Config, data.Default(), launch.Parts{
		Backend: func(int) (kernels.Backend, error) { return b, nil }})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := spec.Of(out.History.Header.Spec)
	if err != nil {
		t.Fatal(err)
	}
	g := &golden.Fingerprints{Name: v.Name, Arithmetic: kernels.Arithmetic, TextHash: cfg.TextHash, Spec: cfg}
	for step := range v.Config.Steps {
		f, err := spec.FingerprintAt(out.History, step)
		if err != nil {
			t.Fatal(err)
		}
		g.Steps = append(g.Steps, f)
	}
	for e := range out.History.All {
		if e.Kind == trace.KindScalar && e.What == trace.Coef && e.Value < 1 {
			g.Clipped = append(g.Clipped, e.Step)
		}
		if e.Kind == trace.KindScalar && e.What == trace.Norm {
			t.Logf("step %d norm %v", e.Step, float64(e.Value))
		}
	}
	return g
}

func record(t *testing.T, v golden.Variant) {
	t.Helper()
	g := run(t, v, ref.New[float32]())
	if n := len(g.Clipped); n == 0 || n == len(g.Steps) {
		t.Fatalf("%d of %d steps are clipped: choose a clipping norm within the run's norms", n, len(g.Steps))
	}
	if err := trace.WriteFile(filepath.Join("fingerprints", v.Name+".txt"), func(w io.Writer) error { return g.Format(w) }); err != nil {
		t.Fatal(err)
	}
}

func ints(x []int) string {
	var b strings.Builder
	for i, v := range x {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(rune('0'+v/10)) + string(rune('0'+v%10)))
	}
	return b.String()
}

// TestEveryFileHasAVariant keeps files of variants that no longer exist out.
func TestEveryFileHasAVariant(t *testing.T) {
	variants, err := golden.Variants()
	if err != nil {
		t.Fatal(err)
	}
	large, err := golden.Large()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, v := range append(variants, large...) {
		known[v.Name+".txt"] = true
	}
	entries, err := os.ReadDir("fingerprints")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".txt") && !known[e.Name()] {
			t.Errorf("fingerprints/%s belongs to no variant", e.Name())
		}
	}
}

func sample(t *testing.T) *golden.Fingerprints {
	t.Helper()
	variants, err := golden.Variants()
	if err != nil {
		t.Fatal(err)
	}
	f := spec.Fingerprint{Weights: kernels.Digest{A: 1, B: 2}, Moments: kernels.Digest{A: 3, B: 1 << 63}, Loss: 0x40b00000}
	return &golden.Fingerprints{Name: variants[0].Name, Arithmetic: 1, TextHash: "abc", Spec: golden.Task(variants[0].Config),
		Clipped: []int{0, 7}, Steps: []spec.Fingerprint{f, f}}
}

func TestFormatAndParse(t *testing.T) {
	g := sample(t)
	var b bytes.Buffer
	if err := g.Format(&b); err != nil {
		t.Fatal(err)
	}
	back, err := golden.ParseFingerprints(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	back.Spec = golden.Task(back.Spec)
	if diff := cmp.Diff(g, back); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	var b bytes.Buffer
	if err := sample(t).Format(&b); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, with, says string }{
		{"no arithmetic", "# arithmetic: 1\n", "", `no header line "arithmetic"`},
		{"arithmetic is a word", "arithmetic: 1", "arithmetic: one", "line 2"},
		{"steps out of order", "\n1 weights", "\n2 weights", "line 8: \"2 weights"},
		{"short digest", "weights=0", "weights=", "line 7"},
		{"digit of a digest", "loss=40b", "loss=4zb", "line 7"},
		{"of a simulated device", "\n1 weights", " (simulated)\n1 weights", "line 7: "},
		{"named by a simulated device", "\n1 weights", " (simulated)\n1 weights", "is of a simulated device"},
		{"broken spec", "# spec: {", "# spec: [", "line 4: spec"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(b.String(), c.old, c.with, 1)
			if text == b.String() {
				t.Fatal("the sample does not hold what is to be replaced")
			}
			if _, err := golden.ParseFingerprints(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v: want one with %q", err, c.says)
			}
		})
	}
	if _, err := golden.ParseFingerprints(strings.NewReader(b.String()[:strings.Index(b.String(), "\n0 ")+1])); err == nil {
		t.Error("a file without steps was read")
	}
}

func TestComparable(t *testing.T) {
	g := sample(t)
	other := g.Spec
	other.Optimizer.LR *= 2
	how := g.Spec
	how.Plan.DP, how.Backend, how.Steps, how.Recording.Workers = 4, "cpu", 2, true
	for _, c := range []struct {
		name       string
		task       spec.Config
		arithmetic int
		text       string
		ok         bool
	}{
		{"the same", g.Spec, 1, "abc", true},
		{"on another plan and backend", how, 1, "abc", true},
		{"another arithmetic", g.Spec, 2, "abc", false},
		{"another text", g.Spec, 1, "abd", false},
		{"another optimizer", other, 1, "abc", false},
	} {
		if err := g.Comparable(c.task, c.arithmetic, c.text); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestLoadNamesTheCommand(t *testing.T) {
	if _, err := golden.LoadFingerprints("none"); err == nil || !strings.Contains(err.Error(), golden.Record) {
		t.Errorf("error %v: want the command that records", err)
	}
}
