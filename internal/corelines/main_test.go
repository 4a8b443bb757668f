package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/internal/source"
)

func TestReport(t *testing.T) {
	var files []*source.File
	for _, c := range []struct{ name, src string }{
		{"core/a/x.go", "// Package a is.\npackage a\n\nvar x = 1\n"},
		{"core/a/x_test.go", "package a\n\nvar y = 1\n"},
		{"core/b/y.go", "package b\n"},
		{"core/b/c/y.go", "package c\nvar z = 1\nvar w = 1\n"},
		{"cmd/y.go", "package main\n"},
	} {
		f, err := source.Parse(c.name, []byte(c.src))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	run := func(files []*source.File, budget int) (string, bool) {
		var b strings.Builder
		ok := report(&b, files, []part{{"apart", []string{"core/b/c/..."}, 0}, {"core", []string{"core/..."}, budget}})
		return b.String(), ok
	}
	const want = `      3  core/b/c
      3  = apart (no budget)
      2  core/a
      1  core/b
      3  = core (budget 3)
`
	if got, ok := run(files, 3); !ok || got != want {
		t.Errorf("kept: %v %s", ok, cmp.Diff(want, got))
	}
	if got, ok := run(files, 2); ok || !strings.Contains(got, "budget 2: exceeded") {
		t.Errorf("a budget of 2 held:\n%s", got)
	}
	if got, ok := run(nil, 2); ok || !strings.Contains(got, "no code found in core") {
		t.Errorf("nothing was enough:\n%s", got)
	}
}
