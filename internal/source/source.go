// Package source reads the Go files of this module as syntax trees, for the
// checks that guard the module itself. It reads every file whatever its build
// tags, so that a rule also holds for code that this machine cannot build.
package source

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// Module is the module's path, and the path under which its packages import
// each other.
const Module = "github.com/lockstep-ml/lockstep"

// File is one parsed Go file.
type File struct {
	// Name is relative to the module root, with slashes; Dir is its directory,
	// "." for the root.
	Name, Dir string
	AST       *ast.File
	Src       []byte
	fset      *token.FileSet
}

// Test reports whether the file is part of tests only.
func (f *File) Test() bool { return strings.HasSuffix(f.Name, "_test.go") }

// Line is the line of a node, from 1.
func (f *File) Line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

// At gives "file:line" of a node.
func (f *File) At(n ast.Node) string { return fmt.Sprintf("%s:%d", f.Name, f.Line(n)) }

// Imports maps the import paths of the file to where they stand.
func (f *File) Imports() map[string]*ast.ImportSpec {
	out := map[string]*ast.ImportSpec{}
	for _, s := range f.AST.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err == nil {
			out[p] = s
		}
	}
	return out
}

// Uses lists the selections X.Name of an imported package, under whatever name
// the file imports it. A dot import gives the import itself, as its names can
// no longer be told from the file's own.
func (f *File) Uses(importPath string) (sel []*ast.SelectorExpr, dot *ast.ImportSpec) {
	spec, ok := f.Imports()[importPath]
	if !ok {
		return nil, nil
	}
	name := path.Base(importPath)
	if spec.Name != nil {
		name = spec.Name.Name
	}
	if name == "." {
		return nil, spec
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		// An identifier with an object is a local of the same name.
		if x, ok := s.X.(*ast.Ident); ok && x.Name == name && x.Obj == nil {
			sel = append(sel, s)
		}
		return true
	})
	return sel, nil
}

// FuncAt is the name of the function or method whose source holds a line, as
// "Func" or "Type.Method"; empty outside functions.
func (f *File) FuncAt(line int) string {
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || line < f.fset.Position(fn.Pos()).Line || line > f.fset.Position(fn.End()).Line {
			continue
		}
		if fn.Recv == nil {
			return fn.Name.Name
		}
		return receiver(fn.Recv.List[0].Type) + "." + fn.Name.Name
	}
	return ""
}

// receiver is the type name of a receiver without pointer and type parameters.
func receiver(t ast.Expr) string {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// Parse parses one file of the module from memory.
func Parse(name string, src []byte) (*File, error) {
	fset := token.NewFileSet()
	a, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &File{Name: name, Dir: path.Dir(name), AST: a, Src: src, fset: fset}, nil
}

// Load parses all Go files below a module root, sorted by name. Hidden
// directories, testdata and ignored output directories are left out.
func Load(root string) ([]*File, error) {
	var out []*File
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && rel != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' || rel == "bin" || rel == "out") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(p) != ".go" {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := Parse(filepath.ToSlash(rel), src)
		if err == nil {
			out = append(out, f)
		}
		return err
	})
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, err
}

// Root finds the module root at or above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod in %s or above", dir)
		}
	}
}

// In reports whether a path lies in a tree: "a/..." is a and all below it, any
// other pattern is that path alone, and "..." is everything.
func In(p, tree string) bool {
	base, deep := strings.CutSuffix(tree, "...")
	if !deep {
		return p == tree
	}
	base = strings.TrimSuffix(base, "/")
	return base == "" || p == base || strings.HasPrefix(p, base+"/")
}
