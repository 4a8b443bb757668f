//go:build ptx

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckFails: PTX that is not what clang makes of the source, whichever of both was
// changed, is missing or has no source, ends the command with 1 and is named; and so does a
// header that was changed, by which PTX may be another.
func TestCheckFails(t *testing.T) {
	atRoot(t)
	sources := map[string]string{"go.mod": "module m\n"}
	for _, pattern := range []string{"*.h", "norm.cu", "vector.cu"} {
		files, err := filepath.Glob(filepath.Join(kernelDir, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources[name] = string(text)
		}
	}
	root := t.TempDir()
	for name, text := range sources {
		write(t, root, name, text, 0o644)
	}
	write(t, root, "kernels/cuda/ptx/old.ptx", "", 0o644)
	if code, said := command(t, root, nil, "-write"); code != 0 || said != "" {
		t.Fatalf("%d, %s", code, said)
	}
	made := map[string]string{}
	for _, name := range []string{"norm.ptx", "vector.ptx", "sources.txt"} {
		text, err := os.ReadFile(filepath.Join(root, kernelDir, "ptx", name))
		if err != nil {
			t.Fatal(err)
		}
		made[name] = string(text)
		if ships, err := os.ReadFile(filepath.Join(kernelDir, "ptx", name)); name != "sources.txt" && (err != nil || string(ships) != made[name]) {
			t.Errorf("%s ships otherwise (%v)", name, err)
		}
	}
	in := func(name string) string { return filepath.Join(root, kernelDir, name) }
	edit := func(name, old, new string) func() error {
		return func() error {
			text, err := os.ReadFile(in(name))
			if err == nil && !strings.Contains(string(text), old) {
				t.Fatalf("%s has no %q", name, old)
			}
			return os.WriteFile(in(name), []byte(strings.Replace(string(text), old, new, 1)), 0o644)
		}
	}
	const not = ": is not what clang makes of the source: run make ptx ("
	for _, c := range []struct {
		name   string
		change func() error
		want   []string
	}{
		{"nothing", func() error { return nil }, nil},
		{"an instruction", edit("ptx/vector.ptx", "add.rn.f32", "sub.rn.f32"), []string{"ptx/vector.ptx" + not}},
		{"a line more", edit("ptx/norm.ptx", ".version", "\n.version"), []string{"ptx/norm.ptx" + not}},
		{"a source", edit("vector.cu", "add(", "mul("), []string{"ptx/vector.ptx" + not, "ptx/sources.txt" + not}},
		{"a header", edit("gpu.h", "// What", "// what"), []string{"ptx/sources.txt" + not}},
		{"no PTX", func() error { return os.Remove(in("ptx/norm.ptx")) }, []string{"ptx/norm.ptx" + not + "open "}},
		{"PTX of no source", func() error { return os.WriteFile(in("ptx/old.ptx"), nil, 0o644) }, []string{"ptx/old.ptx: there is no source of it"}},
		{"a source without PTX", func() error { return os.WriteFile(in("new.cu"), []byte("#include \"gpu.h\"\n"), 0o644) }, []string{"ptx/new.ptx" + not, "ptx/sources.txt" + not}},
		{"a source that is none", edit("norm.cu", "#include", "#inclode"), []string{"norm.cu: exit status 1"}},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		code, said := command(t, root, nil, "-check")
		if want := map[bool]int{true: 0, false: 1}[c.want == nil]; code != want || want == 0 && said != "" {
			t.Errorf("%s: %d, %s", c.name, code, said)
		}
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, said)
			}
		}
		if n := strings.Count(said, not) + strings.Count(said, "no source of it"); n > len(c.want) {
			t.Errorf("%s: %d files are named: %s", c.name, n, said)
		}
		for name, text := range sources {
			write(t, root, name, text, 0o644)
		}
		for name, text := range made {
			write(t, root, filepath.Join(kernelDir, "ptx", name), text, 0o644)
		}
		for _, name := range []string{"new.cu", "ptx/old.ptx"} {
			_ = os.Remove(in(name)) // most have none
		}
	}
}
