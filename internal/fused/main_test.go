package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// src has one function that the compiler may fuse, one that it may not, and one
// into which the first is inlined.
const src = `package a

func Fused(x, y, z float64) float64 {
	return x*y + z
}

func Apart(x, y, z float64) float64 {
	return float64(x*y) + z
}

func Caller(x []float32) (s float64) {
	for _, v := range x {
		s = Fused(float64(v), 2.5, s)
	}
	return s
}

type T struct{}

func (T) Difference(x, y, z float32) float32 { return z - x*y }
`

// compile gives the compiler's listing of src, as go build passes it on.
func compile(t *testing.T, arch, level string) (root string, listing []byte) {
	t.Helper()
	root = t.TempDir()
	name := filepath.Join(root, "a", "a.go")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "compile", "-p", "a", "-S", "-o", filepath.Join(root, "a.o"), name)
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOAMD64="+level)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return root, out
}

// list reads and judges a listing of src.
func list(t *testing.T, root string, listing []byte, allowed map[string]string) (string, bool) {
	t.Helper()
	found, functions, _, err := read(bytes.NewReader(listing))
	if err != nil || functions < 4 {
		t.Fatalf("%d functions read, %v", functions, err)
	}
	f, err := source.Parse("a/a.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	ok := judge(&b, byFunction(root, []*source.File{f}, found), allowed)
	return b.String(), ok
}

func TestListing(t *testing.T) {
	for _, c := range []struct {
		arch, level string
		fuses       bool
	}{{"amd64", "v1", false}, {"amd64", "v3", true}, {"arm64", "v1", true}} {
		root, listing := compile(t, c.arch, c.level)
		got, ok := list(t, root, listing, nil)
		if ok == c.fuses {
			t.Errorf("%s %s: accepted %v:\n%s", c.arch, c.level, ok, got)
		}
		if strings.Contains(got, "Apart") || strings.Contains(got, "Caller") {
			t.Errorf("%s %s: blames a function without a fusible sum:\n%s", c.arch, c.level, got)
		}
		if c.fuses && (!strings.Contains(got, "a.Fused: 2 fused at a/a.go:4: NOT ALLOWED") || c.arch == "arm64" && !strings.Contains(got, "a.T.Difference: ")) {
			t.Errorf("%s %s: want Fused twice, once inlined:\n%s", c.arch, c.level, got)
		}
	}
}

func TestAllowed(t *testing.T) {
	root, listing := compile(t, "arm64", "v1")
	got, ok := list(t, root, listing, map[string]string{"a.Fused": "a reason", "a.T.Difference": "another"})
	if !ok || !strings.Contains(got, "a reason") || !strings.Contains(got, "another") {
		t.Errorf("accepted %v:\n%s", ok, got)
	}
	if got, ok := list(t, root, listing, map[string]string{"a.Fused": "a reason"}); ok {
		t.Errorf("one reason served for both functions:\n%s", got)
	}
}

func TestMessages(t *testing.T) {
	_, functions, messages, err := read(strings.NewReader("# example\nx/y.go:10:2: undefined: z\n"))
	if err != nil || functions != 0 || len(messages) != 1 {
		t.Errorf("%d functions, messages %q, %v", functions, messages, err)
	}
}

// TestReasons: every exception has one.
func TestReasons(t *testing.T) {
	for f, reason := range allowed() {
		if !strings.Contains(f, "/") || len(reason) < 10 {
			t.Errorf("%s: reason %q", f, reason)
		}
	}
}
