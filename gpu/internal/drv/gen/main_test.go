package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestParse: rows that are none, and functions that stand there twice, are found.
func TestParse(t *testing.T) {
	got, err := parse("# comment\n\ncuA cuA_v2 (int *x, const char **y, void *z)\ncuB cuB (void)\n")
	if err != nil || len(got) != 2 || strings.Join(got[0].Args, " ") != "x y z" || got[0].Symbol != "cuA_v2" || got[1].Args != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for bad, want := range map[string]string{
		"":                                  "no functions",
		"cuA (void)":                        `line 1: "cuA (void)" is not NAME SYMBOL (PARAMETERS)`,
		"cuA cuA void":                      "is not NAME SYMBOL",
		"cuA cuA (void)\ncuA cuA_v2 (void)": "line 2: cuA stands there twice",
		"cuA cuX (void)\ncuB cuX (void)":    "line 2: cuB stands there twice",
	} {
		if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}

// TestGenerated: what is in the repository is what is made of the table.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"api.txt", "types.h"} {
		b, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"include", "lib"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := generate(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"include/cuda.h", "trampolines.c", "results.go", "lib/libcuda.a"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("..", name)); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what go generate makes: %v", name, err)
		}
	}
}
