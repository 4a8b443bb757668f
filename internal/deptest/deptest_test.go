package deptest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// ours are the files of this module.
func ours(t *testing.T) []*source.File {
	t.Helper()
	root, err := source.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := source.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestModule applies the rules to this module.
func TestModule(t *testing.T) {
	files := ours(t)
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

// use is a file that imports a package.
func use(pkg string) string {
	return fmt.Sprintf("// Package p is.\npackage p\nimport _ %q\n", pkg)
}

// breaks holds at least one violation per rule.
func breaks() []planted {
	return []planted{
		{"import-table", "core/train/x.go", use(module + "/contracts/ddp")},
		{"import-table", "core/train/x.go", "//go:build cuda\n\n" + use(module+"/cmd/internal/cli")},
		{"import-table", "core/model/x.go", use(module + "/kernels/ref")},
		{"import-table", "core/shard/x.go", use(module + "/core/num")},
		{"import-table", "core/plan/x.go", use(module + "/core/comm")},
		{"import-table", "core/comm/x.go", use(module + "/core/trace")},
		{"import-table", "kernels/ref/x.go", use(module + "/core/comm")},
		{"import-table", "contracts/zero/x.go", use(module + "/core/parallel")},
		{"import-table", "contracts/tp/x.go", use(module + "/contracts/fault")},
		{"import-table", "contracts/tp/suite/x.go", use(module + "/contracts/ddp")},
		{"import-table", "contracts/tp/suite/x.go", use(module + "/cmd/internal/cli")},
		{"import-table", "contracts/report/x.go", use(module + "/property/gen")},
		{"import-table", "contracts/novel/x.go", "// Package p is.\npackage p\n"},
		{"import-table", "x.go", "// Package p is.\npackage p\n"},
		{"core-is-tested-alone", "core/train/x_test.go", use(module + "/golden")},
		{"core-is-tested-on-few-backends", "core/model/x_test.go", use(module + "/kernels/bound")},
		{"kernels-are-tested-alone", "kernels/cpu/x_test.go", use(module + "/core/model")},
		{"contracts-are-tested-without-commands", "contracts/tp/x_test.go", use(module + "/cmd/internal/cli")},
		{"property-is-a-sink", "contracts/tp/x_test.go", use(module + "/property/gen")},
		{"one-test-style", "core/comm/x_test.go", use("pgregory.net/rapid")},
		{"one-test-style", "core/comm/x_test.go", use("github.com/onsi/ginkgo/v2")},
		{"drivers-stay-in-gpu", "kernels/cpu/x.go", use("gorgonia.org/cu")},
		{"drivers-stay-in-gpu", "core/train/x.go", "//go:build cuda\n\n" + use("github.com/NVIDIA/go-nvml/pkg/nvml")},
		{"cgo-has-its-places", "core/comm/mpi.go", "//go:build mpi\n\n" + use("C")},
		{"cgo-has-its-places", "gpu/x.go", "//go:build cuda\n\n" + use("C")},
		{"cgo-has-its-places", "gpu/internal/fakedriver/x.go", "//go:build cuda\n\n" + use("C")},
		{"cgo-is-tagged", "gpu/internal/drv/x.go", use("C")},
		{"cgo-is-tagged", "gpu/internal/drv/x.go", "//go:build linux && cgo\n\n" + use("C")},
		{"cgo-is-tagged", "gpu/internal/drv/x.go", "//go:build !cuda\n\n" + use("C")},
		{"cgo-is-tagged", "gpu/internal/drv/x.go", "//go:build cuda || linux\n\n" + use("C")},
		{"package-docs", "core/train/y.go", "package train\n"},
		{"package-docs", "core/train/y.go", "//go:build linux\n\npackage train\n"},
		{"no-init", "core/train/y.go", "// Package p is.\npackage p\nfunc init() {}\n"},
		{"no-exit", "core/train/y.go", "// Package p is.\npackage p\nimport \"os\"\nfunc f() { os.Exit(1) }\n"},
		{"no-exit", "core/train/y.go", "// Package p is.\npackage p\nimport l \"log\"\nfunc f() { l.Fatalf(\"x\") }\n"},
		{"no-exit", "core/train/y.go", "// Package p is.\npackage p\nimport . \"os\"\nfunc f() { Exit(1) }\n"},
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
	seen["judging-links-no-training"] = true // TestClosure
	seen[judgesListed] = true                // TestJudgesAreListed
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
	for _, p := range []planted{
		{"", "core/model/x.go", use(module + "/kernels")},
		{"", "core/model/x_test.go", use(module + "/kernels/ref")},
		{"", "core/shard/x_test.go", use(module + "/kernels")},
		{"", "gpu/x.go", use("gorgonia.org/cu")},
		{"", "gpu/mon/x.go", use("github.com/NVIDIA/go-nvml/pkg/nvml")},
		{"", "gpu/internal/drv/x.go", "//go:build cuda\n\n" + use("C")},
		{"", "property/x_test.go", use("pgregory.net/rapid")},
		{"", "property/commprop/x_test.go", use(module + "/property/gen")},
		{"", "contracts/fault/x.go", use(module + "/core/comm")},
		{"", "contracts/tp/suite/x.go", use(module + "/contracts/tp")},
		{"", "contracts/tp/x_test.go", use(module + "/core/launch")},
		{"", "cmd/x/main.go", "// Command main is.\npackage main\nimport \"os\"\nfunc main() { os.Exit(1) }\n"},
		{"", "core/train/y.go", "// Package p is.\npackage p\ntype t int\nfunc (t) init() {}\n"},
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
	plain := planted{"", "golden/b.go", "package a\n"}
	if two(plain, planted{"", "golden/doc.go", "// Package a is.\npackage a\n"}) != 0 {
		t.Error("a package comment in a second file was missed")
	}
	if two(plain, planted{"", "golden/b_test.go", "// Package a is.\npackage a\n"}) != 1 {
		t.Error("a package comment in a test file was taken for the package's")
	}
}

// TestClosure: what is linked counts, however long the chain; tests do not.
func TestClosure(t *testing.T) {
	chain := func(middle string) []*source.File {
		var out []*source.File
		for _, p := range []planted{
			{"", "contracts/ddp/x.go", use(module + "/contracts/evidence")},
			{"", middle, use(module + "/core/model")},
			{"", "core/model/x.go", use(module + "/core/train")},
			{"", "core/train/x.go", use(module + "/kernels")},
		} {
			out = append(out, parse(t, p))
		}
		return out
	}
	i := slices.IndexFunc(Rules(), func(r Rule) bool { return r.Name == "judging-links-no-training" })
	rule := Rules()[i : i+1]
	got := Check(rule, chain("contracts/evidence/x.go"))
	want := []string{
		"links core/train: contracts/ddp -> contracts/evidence -> core/model -> core/train",
		"links core/train: contracts/evidence -> core/model -> core/train",
	}
	var says []string
	for _, v := range got {
		says = append(says, v.What)
	}
	if !slices.Equal(says, want) {
		t.Errorf("got %q, want %q", says, want)
	}
	if got := Check(rule, chain("contracts/evidence/x_test.go")); len(got) > 0 {
		t.Errorf("by way of a test: %v", got)
	}
	for _, p := range []string{"core/comm", "core/comm/commtest", "core/launch", "kernels/cpu", "kernels/ref"} {
		if got := Check(rule, []*source.File{parse(t, planted{"", "contracts/contract/x.go", use(module + "/" + p)})}); len(got) != 1 {
			t.Errorf("%s is linked by contracts/contract: %v", p, got)
		}
	}
	for _, dir := range expand(judges()) {
		if got := Check(rule, []*source.File{parse(t, planted{"", dir + "/x.go", use(module + "/core/train")})}); len(got) != 1 {
			t.Errorf("core/train is linked by %s: %v", dir, got)
		}
	}
}

// TestJudgesAreListed: without any of its entries the list of judges is found
// short, and so it is when a contract comes.
func TestJudgesAreListed(t *testing.T) {
	files := ours(t)
	missing := func(list []string, files []*source.File) (out []string) {
		for _, v := range Check([]Rule{listed(list, judgesListed, "a test")}, files) {
			out = append(out, v.At+" "+v.What)
		}
		return out
	}
	all := expand(judges())
	for i, dir := range all {
		if got := missing(slices.Delete(slices.Clone(all), i, i+1), files); len(got) != 1 || !strings.HasPrefix(got[0], dir+" ") {
			t.Errorf("without %s: %q", dir, got)
		}
	}
	var novel []*source.File
	for _, p := range []planted{
		{"", "contracts/novel/x.go", use(module + "/contracts/helper")},
		{"", "contracts/helper/x.go", use(module + "/core/trace")},
		{"", "contracts/novel/suite/x.go", use(module + "/contracts/fault")},
		{"", "contracts/suite/x.go", use(module + "/core/launch")},
		{"", "contracts/driven/x.go", use(module + "/contracts/novel/suite")},
		{"", "contracts/driven/suite/x_test.go", use(module + "/core/launch")},
	} {
		novel = append(novel, parse(t, p))
	}
	i := slices.IndexFunc(Rules(), func(r Rule) bool { return r.Name == judgesListed })
	var got []string
	for _, v := range Check(Rules()[i:i+1], novel) {
		got = append(got, v.At+" "+v.What)
	}
	if want := []string{
		"contracts/helper is linked by contracts/novel and is not on the list",
		"contracts/novel has a suite and is not on the list",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTableIsNotIdle: every row governs a package, and every permission is used.
func TestTableIsNotIdle(t *testing.T) {
	files := ours(t)
	for _, s := range Idle(Table(), files) {
		t.Errorf("the module has no use for %s", s)
	}
	// Of a table that says more.
	more := append(Table(), Row{[]string{"attic/..."}, nil})
	i := slices.IndexFunc(more, func(r Row) bool { return r.Trees[0] == "core/data" })
	more[i].May = []string{"core/{num,shard}", ".."}
	got := Idle(more, files)
	if want := []string{"core/num in the row of core/data", ".. in the row of core/data", "attic/... in the row of attic/..."}; !slices.Equal(got, want) {
		t.Errorf("idle are %q, want %q", got, want)
	}
}

var update = flag.Bool("update", false, "rewrite the import table in ARCHITECTURE.md")

// TestDocument: ARCHITECTURE.md quotes the table between two markers.
func TestDocument(t *testing.T) {
	root, err := source.Root()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(root, "ARCHITECTURE.md")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const first, last = "<!-- internal/deptest: table -->\n", "<!-- end of table -->\n"
	head, rest, ok := strings.Cut(string(b), first)
	got, tail, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		t.Fatalf("ARCHITECTURE.md has no %q before %q", first, last)
	}
	want := "\n" + Render(Table()) + "\n"
	if *update {
		if err := os.WriteFile(name, []byte(head+first+want+last+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("ARCHITECTURE.md quotes another table (go test ./internal/deptest -run Document -update rewrites it):\n%s\nwant\n%s", got, want)
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
