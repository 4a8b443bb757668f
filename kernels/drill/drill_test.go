package drill_test

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestWithoutTesting: neither the package nor what it is made of knows package
// testing, which would add its flags to every command.
func TestWithoutTesting(t *testing.T) {
	for _, dir := range []string{".", "..", "../ref"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(names), err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				path, _ := strconv.Unquote(i.Path.Value)
				if path == "testing" || dir == "." && strings.HasSuffix(path, "kerneltest") {
					t.Errorf("%s imports %s", name, path)
				}
			}
		}
	}
}

// TestCases: every kernel has cases of level 1 and names are unique; a level
// leaves out those above it and no others, and Only selects whole kernels.
func TestCases(t *testing.T) {
	all, one := drill.Cases(drill.Options{}), drill.Cases(drill.Options{Level: 1})
	seen, first := map[string]bool{}, map[string]int{}
	above := 0
	for _, c := range all {
		if id := c.Kernel + " " + c.Name; seen[id] {
			t.Errorf("two cases are called %s", id)
		} else {
			seen[id] = true
		}
		if c.Level < 1 || c.Level > 2 || c.Work < 0 {
			t.Errorf("%s %s: level %d, work %d", c.Kernel, c.Name, c.Level, c.Work)
		}
		if c.Level > 1 {
			above++
		}
	}
	for _, c := range one {
		if c.Level != 1 || !seen[c.Kernel+" "+c.Name] {
			t.Errorf("%s %s at level 1: its own is %d", c.Kernel, c.Name, c.Level)
		}
		first[c.Kernel]++
	}
	if above == 0 || len(one)+above != len(all) {
		t.Errorf("%d cases, %d of level 1, %d above", len(all), len(one), above)
	}
	k := reflect.TypeFor[kernels.Kernels]()
	for i := range k.NumMethod() {
		if first[k.Method(i).Name] < 50 {
			t.Errorf("%s: %d cases of level 1", k.Method(i).Name, first[k.Method(i).Name])
		}
	}
	if len(first) != k.NumMethod()+2 {
		t.Errorf("%d kernels, want %d, %s and %s", len(first), k.NumMethod(), drill.Memory, drill.Misuse)
	}
	for _, c := range drill.Cases(drill.Options{Only: []string{"Rope", drill.Misuse}}) {
		if c.Kernel != "Rope" && c.Kernel != drill.Misuse {
			t.Errorf("Only Rope and Misuse gives %s", c.Kernel)
		}
	}
}

// wrong is package ref with another Add.
type wrong struct {
	kernels.Backend
	add func(b kernels.Backend, dst, x, y kernels.Tensor)
}

func (w wrong) Add(dst, x, y kernels.Tensor) {
	if w.add == nil {
		w.Backend.Add(dst, x, y)
		return
	}
	w.add(w.Backend, dst, x, y)
}

// results runs all cases of Add.
func results(t *testing.T, w wrong, seed uint64) (all []drill.Result) {
	t.Helper()
	w.Backend = ref.New[float32]()
	if err := drill.Run(t.Context(), w, ref.New[float32](), drill.Cases(drill.Options{Only: []string{"Add"}, Seed: seed}), func(r drill.Result) { all = append(all, r) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestResults: results come in order, with the number of elements compared, and
// are the same at every run.
func TestResults(t *testing.T) {
	cases := drill.Cases(drill.Options{Only: []string{"Add"}})
	all := results(t, wrong{}, 0)
	if len(all) != len(cases) {
		t.Fatalf("%d results of %d cases", len(all), len(cases))
	}
	for i, r := range all {
		if r.Case.Name != cases[i].Name || r.Elements != r.Case.Elements || r.Elements < r.Case.Work || r.Elements == 0 || r.Difference != nil {
			t.Errorf("result %d is %s, %d elements for work %d, %v; want %s", i, r.Case.Name, r.Elements, r.Case.Work, r.Difference, cases[i].Name)
		}
	}
	flip := wrong{add: func(b kernels.Backend, dst, x, y kernels.Tensor) {
		b.Add(dst, x, y)
		if dst.Len() == 1023 {
			b.Scale(dst.Range(1000, 1001), dst.Range(1000, 1001), -1)
		}
	}}
	differences := func(seed uint64) (ds []drill.Difference) {
		for _, r := range results(t, flip, seed) {
			if r.Difference != nil {
				ds = append(ds, *r.Difference)
			}
		}
		return ds
	}
	a, b, c := differences(1), differences(1), differences(2)
	if diff := cmp.Diff(a, b); diff != "" || len(a) == 0 {
		t.Errorf("two runs, %d differences: %s", len(a), diff)
	}
	if cmp.Equal(a, c) {
		t.Error("another seed gives the same values")
	}
	for _, d := range a {
		if d.Kernel != "Add" || !strings.HasPrefix(d.Case, "n1023_") || d.Kind != drill.Output || d.Got == d.Want || d.Differ != 1 || !strings.Contains(d.At, "element 1000 of") {
			t.Errorf("a flipped sign at element 1000 is reported as %+v", d)
		}
	}
}

// TestKinds: each kind of difference is told from the others, in short cases and
// in long ones.
func TestKinds(t *testing.T) {
	at := func(x kernels.Tensor, i int) kernels.Tensor {
		return kernels.Tensor{Buf: x.Buf, Off: x.Off + i, Rows: 1, Cols: 1, Stride: 1}
	}
	for _, tc := range []struct {
		name string
		kind drill.Kind
		long string // where the long case sees it
		f    func(b kernels.Backend, dst, x, y kernels.Tensor)
	}{
		{"last element", drill.Output, "dst (element 2799616 of 2799617)", func(b kernels.Backend, dst, x, y kernels.Tensor) {
			b.Fill(at(dst, dst.Len()-1), 17)
		}},
		{"beyond the end", drill.Guard, "beside dst (element 2799617 of 2799617)", func(b kernels.Backend, dst, x, y kernels.Tensor) {
			b.Fill(at(dst, dst.Len()), 0)
		}},
		{"before the start", drill.Guard, "beside dst (element -1 of 2799617)", func(b kernels.Backend, dst, x, y kernels.Tensor) {
			b.Fill(at(dst, -1), 0)
		}},
		{"an input", drill.ReadOnly, "y (element 1399808 of 2799617)", func(b kernels.Backend, dst, x, y kernels.Tensor) {
			if y.Off != dst.Off || y.Buf != dst.Buf {
				b.Fill(at(y, y.Len()/2), 16)
			}
		}},
		{"panic", drill.Failed, "", func(kernels.Backend, kernels.Tensor, kernels.Tensor, kernels.Tensor) { panic("broken") }},
	} {
		short, long := 0, 0
		for _, r := range results(t, wrong{add: func(b kernels.Backend, dst, x, y kernels.Tensor) {
			b.Add(dst, x, y)
			if dst.Len() > 0 {
				tc.f(b, dst, x, y)
			}
		}}, 0) {
			d := r.Difference
			switch {
			case d == nil:
			case d.Kind != tc.kind && tc.kind != drill.ReadOnly: // in place, an input is an output
				t.Errorf("%s: %s: kind %d, want %d: %s", tc.name, r.Case.Name, d.Kind, tc.kind, d)
			case strings.HasPrefix(r.Case.Name, "long"):
				long++
				if tc.long != d.At {
					t.Errorf("%s: at %q, want %q", tc.name, d.At, tc.long)
				}
				if tc.kind == drill.Failed && !strings.Contains(d.String(), "broken") {
					t.Errorf("%s: %s", tc.name, d)
				}
			default:
				short++
			}
		}
		if short == 0 || long != 1 {
			t.Errorf("%s: found by %d short and %d long cases", tc.name, short, long)
		}
	}
}

// TestRunStops: a context that ends stops a run, and its error is given.
func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := drill.Run(ctx, ref.New[float32](), ref.New[float32](), drill.Cases(drill.Options{Level: 1}), func(drill.Result) {
		if n++; n == 20 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || n != 20 {
		t.Errorf("%d cases ran, error %v; want 20 and %v", n, err, context.Canceled)
	}
}
