package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// clang is the compiler whose PTX ships: another version may give other instructions.
const clang = "clang-19"

// byClang compiles a source without a toolkit. Products and sums are not contracted, and
// then they are printed with .rn, which assemblers may not contract either. Lines of the
// sources are in the text, for whoever reports one, but no path of this machine.
func byClang(cu string) ([]byte, error) {
	if _, err := exec.LookPath(clang); err != nil {
		return nil, fmt.Errorf("%w (Debian: apt-get install %s)", err, clang)
	}
	cmd := exec.Command(clang, "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "--cuda-feature=+ptx80",
		"-nocudainc", "-nocudalib", "-std=c++17", "-O3", "-ffp-contract=off", "-Wall", "-Wno-unused-function", "-Werror",
		"-gline-tables-only", "-fdebug-compilation-dir=.", "-S", "-o", "-", filepath.Base(cu))
	cmd.Dir = filepath.Dir(cu)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said.Bytes())
	}
	return out, nil
}

// manifestFile names the file that says of which sources the PTX was made.
func manifestFile() string { return filepath.Join(kernelDir, "ptx", "sources.txt") }

// manifest is its content: whoever lacks clang can tell by it that PTX is out of date.
func manifest() ([]byte, error) {
	var out bytes.Buffer
	for _, pattern := range []string{"*.cu", "*.h"} {
		files, err := filepath.Glob(filepath.Join(kernelDir, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(text), filepath.Base(f))
		}
	}
	return out.Bytes(), nil
}
