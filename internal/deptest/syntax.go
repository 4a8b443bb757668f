package deptest

import (
	"go/ast"
	"go/build/constraint"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// each makes a Rule that looks at one file at a time; find reports places.
func each(name, reason string, find func(f *source.File, report func(n ast.Node, what string))) Rule {
	return Rule{name, reason, func(r *Rule, files []*source.File) (out []Violation) {
		for _, f := range files {
			find(f, func(n ast.Node, what string) { out = append(out, r.at(f.At(n), what)) })
		}
		return out
	}}
}

// packageDocs demands a package comment in a non-test file of every directory,
// or in a test file where there is no other.
func packageDocs(name, reason string) Rule {
	return Rule{name, reason, func(r *Rule, files []*source.File) (out []Violation) {
		code, doc := map[string]bool{}, map[string]bool{}
		for _, f := range files {
			code[f.Dir] = code[f.Dir] || !f.Test()
		}
		for _, f := range files {
			if f.Test() != code[f.Dir] && f.AST.Doc != nil && strings.TrimSpace(f.AST.Doc.Text()) != "" {
				doc[f.Dir] = true
			}
		}
		for dir := range code {
			if !doc[dir] {
				out = append(out, r.at(dir, "has no package comment"))
			}
		}
		return out
	}}
}

// cgoIsTagged finds files that call C and are built where none of the given tags is
// asked for.
func cgoIsTagged(tags ...string) func(*source.File, func(ast.Node, string)) {
	return func(f *source.File, report func(ast.Node, string)) {
		spec, calls := f.Imports()["C"]
		if !calls {
			return
		}
		for line := range strings.Lines(string(f.Src)) {
			if !constraint.IsGoBuild(line) {
				continue
			}
			// Whatever system it is, and whatever else is asked for.
			x, err := constraint.Parse(strings.TrimSpace(line))
			if err == nil && !x.Eval(func(tag string) bool { return !slices.Contains(tags, tag) }) {
				return
			}
			break
		}
		report(spec, "calls C without one of the build tags "+strings.Join(tags, ", "))
	}
}

// noInit finds functions that run on import.
func noInit(f *source.File, report func(ast.Node, string)) {
	for _, d := range f.AST.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			report(fn, "declares init")
		}
	}
}

// noExit finds the ends of the process outside package main.
func noExit(f *source.File, report func(ast.Node, string)) {
	if f.Test() || f.AST.Name.Name == "main" {
		return
	}
	ends := map[string]func(name string) bool{
		"os":      func(s string) bool { return s == "Exit" },
		"syscall": func(s string) bool { return s == "Exit" },
		"log":     func(s string) bool { return strings.HasPrefix(s, "Fatal") || strings.HasPrefix(s, "Panic") },
	}
	for pkg, bad := range ends {
		selectorsOf(f, pkg, report, bad)
	}
}

// selectorsOf reports the selections of a package that are bad, and any dot
// import of it.
func selectorsOf(f *source.File, pkg string, report func(ast.Node, string), bad func(string) bool) {
	sel, dot := f.Uses(pkg)
	if dot != nil {
		report(dot, "imports "+pkg+" with a dot")
	}
	for _, s := range sel {
		if bad(s.Sel.Name) {
			report(s, "uses "+pkg+"."+s.Sel.Name)
		}
	}
}

// exactMath lists what package math computes exactly or rounds once, whatever
// the architecture: these results are defined by IEEE 754, not by an algorithm.
func exactMath(name string) bool {
	switch name {
	case "Sqrt", "FMA", "Abs", "Floor", "Ceil", "Trunc", "Copysign", "Signbit", "Frexp", "Ldexp", "Nextafter", "Nextafter32",
		"Float32bits", "Float32frombits", "Float64bits", "Float64frombits", "Inf", "NaN", "IsNaN", "IsInf",
		"Pi", "Sqrt2", "Ln2", "Log2E", "E", "SmallestNonzeroFloat32", "SmallestNonzeroFloat64":
		return true
	}
	return strings.HasPrefix(name, "MaxInt") || strings.HasPrefix(name, "MinInt") || strings.HasPrefix(name, "MaxUint") ||
		name == "MaxFloat32" || name == "MaxFloat64"
}

// portableMath finds functions of package math whose bits differ between
// machines, outside the functions and directories that are excepted.
func portableMath(except map[string]string) func(*source.File, func(ast.Node, string)) {
	return func(f *source.File, report func(ast.Node, string)) {
		if f.Test() {
			return
		}
		sel, dot := f.Uses("math")
		if dot != nil {
			report(dot, "imports math with a dot")
		}
		for _, s := range sel {
			if exactMath(s.Sel.Name) || excepted(f, s, except) {
				continue
			}
			report(s, "uses math."+s.Sel.Name)
		}
	}
}

// excepted looks for "dir" or "dir.Func" in a list.
func excepted(f *source.File, n ast.Node, list map[string]string) bool {
	if _, ok := list[f.Dir]; ok {
		return true
	}
	_, ok := list[f.Dir+"."+f.FuncAt(f.Line(n))]
	return ok
}
