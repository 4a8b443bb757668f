package deptest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// TestModule applies the rules to this module.
func TestModule(t *testing.T) {
	root, err := source.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := source.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("%d files: this is not the module", len(files))
	}
	for _, v := range Check(Rules(), files) {
		t.Error(v)
	}
}

// planted is a file that breaks a rule, or must not.
type planted struct{ rule, name, src string }

const module = source.Module

// breaks holds at least one violation per rule.
func breaks() []planted {
	use := func(pkg string) string { return fmt.Sprintf("// Package p is.\npackage p\nimport _ %q\n", pkg) }
	return []planted{
		{"core-imports-nothing-above", "core/train/x.go", use(module + "/contracts/ddp")},
		{"core-imports-nothing-above", "core/train/x_test.go", use(module + "/golden")},
		{"core-imports-nothing-above", "core/x/y.go", use(module + "/gpu")},
		{"core-imports-nothing-above", "core/x/y.go", "//go:build cuda\n\n" + use(module+"/cmd/internal/cli")},
		{"core-knows-no-backend", "core/model/x.go", use(module + "/kernels/ref")},
		{"core-knows-no-backend", "core/model/x_test.go", use(module + "/kernels/bound")},
		{"leaves", "core/shard/x.go", use(module + "/core/num")},
		{"kernels-know-no-world", "kernels/ref/x.go", use(module + "/core/comm")},
		{"kernels-know-no-world", "kernels/x_test.go", use(module + "/core/model")},
		{"contracts-know-no-command", "contracts/tp/x.go", use(module + "/cmd/internal/cli")},
		{"property-is-a-sink", "contracts/tp/x_test.go", use(module + "/property/gen")},
		{"one-test-style", "core/comm/x_test.go", use("pgregory.net/rapid")},
		{"one-test-style", "core/comm/x_test.go", use("github.com/onsi/ginkgo/v2")},
		{"drivers-stay-in-gpu", "kernels/cuda/x.go", use("gorgonia.org/cu")},
		{"drivers-stay-in-gpu", "core/comm/mpi.go", "//go:build mpi\n\n" + use("C")},
		{"clauses-judge-histories", "contracts/tp/x.go", "// Package p is.\npackage p\nimport \"" + module + "/core/comm\"\nvar x comm.Communicator\n"},
		{"package-docs", "core/x/y.go", "package y\n"},
		{"package-docs", "core/x/y.go", "//go:build linux\n\npackage y\n"},
		{"no-init", "core/x/y.go", "// Package p is.\npackage p\nfunc init() {}\n"},
		{"no-exit", "core/x/y.go", "// Package p is.\npackage p\nimport \"os\"\nfunc f() { os.Exit(1) }\n"},
		{"no-exit", "core/x/y.go", "// Package p is.\npackage p\nimport l \"log\"\nfunc f() { l.Fatalf(\"x\") }\n"},
		{"no-exit", "core/x/y.go", "// Package p is.\npackage p\nimport . \"os\"\nfunc f() { Exit(1) }\n"},
		{"portable-math", "core/optim/x.go", "// Package p is.\npackage p\nimport \"math\"\nvar x = math.Pow(2, 3)\n"},
		{"portable-math", "kernels/ref/x.go", "// Package p is.\npackage p\nimport m \"math\"\nfunc exp32() float64 { return m.Exp(1) }\n"},
		{"portable-math", "kernels/ref/x.go", "// Package p is.\npackage p\nimport . \"math\"\nfunc exp() float64 { return Exp(1) }\n"},
	}
}

// TestPlanted: each planted file breaks exactly its rule, and every rule has one.
func TestPlanted(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range breaks() {
		var got []string
		for _, v := range Check(Rules(), []*source.File{parse(t, p)}) {
			got = append(got, v.Rule)
		}
		if !slices.Equal(got, []string{p.rule}) {
			t.Errorf("%s breaks %v, want %s:\n%s", p.name, got, p.rule, p.src)
		}
		seen[p.rule] = true
	}
	names := map[string]bool{}
	for _, r := range Rules() {
		if !seen[r.Name] {
			t.Errorf("rule %s has no planted violation", r.Name)
		}
		if names[r.Name] || r.Reason == "" {
			t.Errorf("rule %q is not unique or has no reason", r.Name)
		}
		names[r.Name] = true
	}
}

// TestAllowed: what the rules must let pass.
func TestAllowed(t *testing.T) {
	use := func(pkg string) string { return fmt.Sprintf("// Package p is.\npackage p\nimport _ %q\n", pkg) }
	for _, p := range []planted{
		{"", "core/model/x.go", use(module + "/kernels")},
		{"", "core/model/x_test.go", use(module + "/kernels/ref")},
		{"", "core/shard/x_test.go", use(module + "/kernels")},
		{"", "gpu/cuda/x.go", use("gorgonia.org/cu")},
		{"", "property/x_test.go", use("pgregory.net/rapid")},
		{"", "property/commprop/x_test.go", use(module + "/property/gen")},
		{"", "contracts/fault/x.go", "// Package p is.\npackage p\nimport \"" + module + "/core/comm\"\nvar x comm.Communicator\n"},
		{"", "contracts/tp/x.go", "// Package p is.\npackage p\nimport \"" + module + "/core/comm\"\nvar x, y = names.OpSend, names.Tree\n"},
		{"", "cmd/x/main.go", "// Command main is.\npackage main\nimport \"os\"\nfunc main() { os.Exit(1) }\n"},
		{"", "core/x/y.go", "// Package p is.\npackage p\ntype t int\nfunc (t) init() {}\n"},
		{"", "core/optim/x.go", "// Package p is.\npackage p\nimport \"math\"\nvar x = math.Sqrt(math.MaxFloat64)\n"},
		{"", "kernels/ref/x.go", "// Package p is.\npackage p\nimport \"math\"\nfunc exp() float64 { return math.Exp(1) }\n"},
		{"", "property/x_test.go", "// Package p holds only tests.\npackage p\n"},
	} {
		for _, v := range Check(Rules(), []*source.File{parse(t, p)}) {
			t.Errorf("%s: %v:\n%s", p.name, v, p.src)
		}
	}
	// The comment may stand in another file of the directory, but not in a test.
	two := func(a, b planted) int { return len(Check(Rules(), []*source.File{parse(t, a), parse(t, b)})) }
	plain := planted{"", "a/b.go", "package a\n"}
	if two(plain, planted{"", "a/doc.go", "// Package a is.\npackage a\n"}) != 0 {
		t.Error("a package comment in a second file was missed")
	}
	if two(plain, planted{"", "a/b_test.go", "// Package a is.\npackage a\n"}) != 1 {
		t.Error("a package comment in a test file was taken for the package's")
	}
}

func parse(t *testing.T, p planted) *source.File {
	t.Helper()
	f, err := source.Parse(p.name, []byte(p.src))
	if err != nil {
		t.Fatal(err)
	}
	return f
}
