package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ourHeader is the cuda.h that programs are built with.
const ourHeader = "gpu/internal/drv/include/cuda.h"

// declared is what a header says.
type declared struct{ constants, types, functions []string }

// read finds it in the text of our header.
func read(text string) (d declared) {
	text = regexp.MustCompile(`//.*|(?s:/\*.*?\*/)`).ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`\benum\b[^{;]*\{([^}]*)\}`).FindAllStringSubmatch(text, -1) {
		d.constants = append(d.constants, regexp.MustCompile(`\bCU(?:DA)?_[A-Z]\w*`).FindAllString(m[1], -1)...)
	}
	for _, m := range regexp.MustCompile(`#define[ \t]+(CU_\w+)[ \t]+\S`).FindAllStringSubmatch(text, -1) {
		d.constants = append(d.constants, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)(?:^typedef\b[^;{}]*?\W|^.*\}\s*)(CU\w+|cuuint\w+);`).FindAllStringSubmatch(text, -1) {
		d.types = append(d.types, m[1])
	}
	d.functions = regexp.MustCompile(`(?m)^CUresult CUDAAPI \w+\([^;]*\);`).FindAllString(text, -1)
	slices.Sort(d.constants)
	d.constants = slices.Compact(d.constants)
	return d
}

// differs names the constants that may have another value, and says why.
func differs() map[string]string {
	return map[string]string{"CU_CTX_FLAGS_MASK": "all flags there are: later versions have more"}
}

// compareHeaders holds ours against NVIDIA's.
func compareHeaders(dir string) error {
	theirs, err := tool(dir, "include/cuda.h")
	if err != nil {
		return err
	}
	return compareHeader(ourHeader, theirs)
}

// compareHeader holds a header of ours against one of theirs: every constant has its
// value, every type its size, and every function its parameters.
func compareHeader(our, theirs string) error {
	text, err := os.ReadFile(our)
	if err != nil {
		return err
	}
	d := read(string(text))
	if len(d.constants) < 300 || len(d.types) < 40 || len(d.functions) < 150 {
		return fmt.Errorf("%s: found %d constants, %d types and %d functions only", our, len(d.constants), len(d.types), len(d.functions))
	}
	work, err := os.MkdirTemp("", "header")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	ours, err := values(work, "ours", our, d)
	if err != nil {
		return err
	}
	real, err := values(work, "theirs", theirs, d)
	if err != nil {
		return err
	}
	var errs []error
	for i, line := range ours {
		name, _, _ := strings.Cut(line, " ")
		if i < len(real) && line == real[i] || differs()[name] != "" {
			continue
		}
		errs = append(errs, fmt.Errorf("%s says %q, NVIDIA's %q", our, line, real[min(i, len(real)-1)]))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	fmt.Printf("%d constants, %d types and %d functions are those of NVIDIA's cuda.h\n", len(d.constants), len(d.types), len(d.functions))
	return nil
}

// values is what a program prints that includes a header and declares our functions
// besides; where the two declare one of them differently it does not compile.
func values(work, name, header string, d declared) ([]string, error) {
	var b strings.Builder
	header, err := filepath.Abs(header)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "#define __CUDA_API_VERSION_INTERNAL\n#include %q\n#include <stdio.h>\n", header)
	// Theirs calls the second version so, ours has the first, as gorgonia.org/cu does.
	b.WriteString("#ifdef __cuda_cuda_h__\n#define CUDA_KERNEL_NODE_PARAMS CUDA_KERNEL_NODE_PARAMS_v1\n#endif\n")
	for _, f := range d.functions {
		b.WriteString(f + "\n")
	}
	b.WriteString("int main(void) {\n")
	for _, c := range d.constants {
		fmt.Fprintf(&b, "printf(\"%s %%lld\\n\", (long long)%s);\n", c, c)
	}
	for _, t := range d.types {
		fmt.Fprintf(&b, "printf(\"sizeof %s %%zu\\n\", sizeof(%s));\n", t, t)
	}
	b.WriteString("}\n")
	source, program := filepath.Join(work, name+".c"), filepath.Join(work, name)
	if err := os.WriteFile(source, []byte(b.String()), 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-w", "-o", program, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a program with %s: %w\n%s", header, err, out)
	}
	out, err := exec.Command(program).Output()
	return strings.Split(string(out), "\n"), err
}
