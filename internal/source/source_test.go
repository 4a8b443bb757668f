package source

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func parse(t *testing.T, src string) *File {
	t.Helper()
	f, err := Parse("a/b.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCodeLines(t *testing.T) {
	for src, want := range map[string]int{
		"package a":                                             1,
		"// c\n\npackage a // d\n\n/* x\ny */\n":                1,
		"package a\nvar x = 1; var y = 2\n":                     2,
		"package a\nvar x = `1\n2\n\n4` + `a`\n":                5,
		"package a\nfunc f() {\n\t// c\n\n\tg(\n\t\t1,\n\t)\n}": 6,
		"package a\r\nvar s = `a\r\nb`\r\n":                     3,
	} {
		if got := parse(t, src).CodeLines(); got != want {
			t.Errorf("%q: %d lines of code, want %d", src, got, want)
		}
	}
}

func TestUses(t *testing.T) {
	names := func(src string) (out []string) {
		sel, dot := parse(t, src).Uses("math")
		for _, s := range sel {
			out = append(out, s.Sel.Name)
		}
		if dot != nil {
			out = append(out, ".")
		}
		return out
	}
	for src, want := range map[string][]string{
		"package a": nil,
		"package a\nimport \"math\"\nvar x = math.Pi + f(math.Sin)":      {"Pi", "Sin"},
		"package a\nimport m \"math\"\nvar x, y = m.Exp(1), math.Sin(2)": {"Exp"},
		"package a\nimport . \"math\"\nvar x = Sin(1)":                   {"."},
		"package a\nimport \"math\"\nfunc f(math T) { math.Sin() }":      nil,
		"package a\nimport \"math/big\"\nvar x big.Int":                  nil,
	} {
		if got := names(src); !slices.Equal(got, want) {
			t.Errorf("%q uses %v, want %v", src, got, want)
		}
	}
}

func TestFuncAt(t *testing.T) {
	f := parse(t, "package a\n\nfunc f() {\n\tg()\n}\n\nfunc (x *T[P]) m() {}\nfunc (U) n() {\n}\nfunc (x V[P, Q]) o() {}\n")
	for line, want := range map[int]string{1: "", 3: "f", 4: "f", 5: "f", 6: "", 7: "T.m", 9: "U.n", 10: "V.o"} {
		if got := f.FuncAt(line); got != want {
			t.Errorf("line %d is in %q, want %q", line, got, want)
		}
	}
}

func TestIn(t *testing.T) {
	for _, c := range []struct {
		path, tree string
		want       bool
	}{
		{"core", "core/...", true}, {"core/comm", "core/...", true}, {"corelines", "core/...", false}, {"core/comm", "core", false},
		{"x", "...", true}, {"core", "core", true}, {"gorgonia.org/cu/dnn", "gorgonia.org/cu/...", true},
	} {
		if got := In(c.path, c.tree); got != c.want {
			t.Errorf("In(%q, %q) = %v", c.path, c.tree, got)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"z.go", "a/b_test.go", "a/cuda.go", "a/testdata/no.go", ".x/no.go", "bin/no.go", "a/bin/yes.go", "a/no.txt"} {
		p := filepath.Join(dir, n)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("//go:build never\n\npackage a\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Name)
	}
	if want := []string{"a/b_test.go", "a/bin/yes.go", "a/cuda.go", "z.go"}; !slices.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
	if !files[0].Test() || files[2].Test() || files[3].Dir != "." {
		t.Errorf("tests %v, %v; root directory %q", files[0].Test(), files[2].Test(), files[3].Dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken.go"), []byte("package"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a file with a syntax error was accepted")
	}
}
