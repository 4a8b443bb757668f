package kerneltest_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
	"github.com/lockstep-ml/lockstep/kernels/null"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// failures records what the suite reports.
type failures []string

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	*f = append(*f, fmt.Sprintf(format, args...))
}

// TestReference: the oracle passes its own suite, which is not a tautology: what
// is read-only, guarded, about memory or misuse, or known from integers alone is
// not compared with the oracle.
func TestReference(t *testing.T) { conforms(t) }

// TestNull: the null backend refuses the same shapes as a real one, and
// computes nothing, so that every kernel is found wrong.
func TestNull(t *testing.T) {
	var f failures
	if kerneltest.Check(&f, null.New(), kerneltest.Options{Only: []string{"Misuse"}}); len(f) > 0 {
		t.Errorf("misuse: %s", strings.Join(f, "\n"))
	}
	kernelsType := reflect.TypeFor[kernels.Kernels]()
	for i := range kernelsType.NumMethod() {
		name := kernelsType.Method(i).Name
		var f failures
		ran := kerneltest.Check(&f, null.New(), kerneltest.Options{Only: []string{name}, Failures: 1})
		if ran == 0 || len(f) != 1 || !strings.HasPrefix(f[0], name+" ") {
			t.Errorf("%s: %d cases found %q, want one failure", name, ran, f)
		}
	}
}

// TestReport: a failing case names kernel, case, element, both values, and how
// to run it alone, which then fails in the same way.
func TestReport(t *testing.T) {
	var f failures
	kerneltest.Check(&f, addFlushes{ref.New[float32]()}, kerneltest.Options{Only: []string{"Add"}, Seed: 3, Failures: 1})
	if len(f) != 1 {
		t.Fatalf("%d failures, want 1", len(f))
	}
	for _, part := range []string{"Add n", "_tiny", "(element ", "got 0x", "want 0x", "output elements differ", "reproduce: kerneltest.Options{Seed: 3, Only: []string{\"Add\"}, Case: \"n"} {
		if !strings.Contains(f[0], part) {
			t.Errorf("report %q lacks %q", f[0], part)
		}
	}
	name := f[0][strings.Index(f[0], `Case: "`)+len(`Case: "`) : strings.LastIndex(f[0], `"`)]
	var again failures
	ran := kerneltest.Check(&again, addFlushes{ref.New[float32]()}, kerneltest.Options{Only: []string{"Add"}, Seed: 3, Case: name})
	if ran != 1 || len(again) != 1 || again[0] != f[0] {
		t.Errorf("case %q alone: ran %d, %q; want the same failure as before: %q", name, ran, again, f[0])
	}
}

// TestOptions: a part that loses all its cases is an error, and a limit on work
// leaves the small ones.
func TestOptions(t *testing.T) {
	var f failures
	if ran := kerneltest.Check(&f, ref.New[float32](), kerneltest.Options{Only: []string{"Add"}, Case: "no such case"}); ran != 0 || len(f) != 1 {
		t.Errorf("unknown case: ran %d, %q; want an error", ran, f)
	}
	only := []string{"MatMulNT"}
	f = nil
	all := kerneltest.Check(&f, ref.New[float32](), kerneltest.Options{Only: only, Level: 1})
	some := kerneltest.Check(&f, ref.New[float32](), kerneltest.Options{Only: only, Level: 1, MaxWork: 1000})
	if some == 0 || some >= all || len(f) != 0 {
		t.Errorf("%d cases of at most 1000 steps, %d in all, failures %q", some, all, f)
	}
}

// BenchmarkReference times the oracle.
func BenchmarkReference(b *testing.B) {
	kerneltest.Bench(b, func(*testing.B) kernels.Backend { return ref.New[float32]() })
}
