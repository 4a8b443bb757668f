// Package fakedriver makes CUDA drivers for tests: libraries that a C compiler makes of one
// source, in variants. They compute next to nothing, and are strict about contexts.
package fakedriver

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed testdata/driver.c
var source []byte

// Attributes of a fake device that a real one does not have.
const (
	Sets      = 1000 // how often a thread was given a context
	Allocated = 1001 // bytes of its memory
	Refs      = 1002 // how often it is open
	Peers     = 1003 // a bit for each device whose memory it was let use, since it is open
)

// Memory is how much memory a fake device has.
const Memory = 1 << 20

// Build makes the variant of the driver that macros ("DEVICES=0") define, as a file; the
// header is in include.
func Build(file, include string, macros ...string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	src := file + ".c"
	if err := os.WriteFile(src, source, 0o644); err != nil {
		return err
	}
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I", include, "-o", file, src}
	for _, m := range macros {
		args = append(args, "-D"+m)
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", cc, args, err, out)
	}
	return nil
}
