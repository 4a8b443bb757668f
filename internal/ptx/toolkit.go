package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// architectures are what the PTX is assembled for: A100, H100, B200, and the cards of
// workstations of that time.
func architectures() []string { return []string{"sm_80", "sm_90", "sm_100", "sm_120"} }

// tool finds a file of NVIDIA's packages in a virtual environment.
func tool(dir, name string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "lib/python3*/site-packages/nvidia/*", name))
	if err != nil || len(found) != 1 {
		return "", errors.Join(fmt.Errorf("%s in %s: found %q, want one", name, dir, found), err)
	}
	return filepath.Abs(found[0])
}

// resourceFile is the reviewed text of what kernels need.
func resourceFile() string { return filepath.Join(kernelDir, "ptx", "resources.txt") }

// need is what a kernel needs on one architecture.
type need struct{ registers, local, spilled, shared string }

func (n need) String() string {
	return strings.Join([]string{n.registers, n.local, n.spilled, n.shared}, "/")
}

// resources assembles all PTX by the ptxas of each toolkit, for every architecture, and
// compares what kernels need with what was reviewed.
func resources(dirs []string, update bool) error {
	files, err := sources()
	if err != nil {
		return err
	}
	var kernels, columns []string
	needs := map[string][]string{}
	for _, dir := range dirs {
		ptxas, err := tool(dir, "bin/ptxas")
		if err != nil {
			return err
		}
		version, err := ptxasVersion(ptxas)
		if err != nil {
			return err
		}
		for _, arch := range architectures() {
			columns = append(columns, version+" "+arch)
			for _, cu := range files {
				names, found, err := assemble(ptxas, arch, ptxOf(cu))
				if err != nil {
					return err
				}
				for _, name := range names {
					if !slices.Contains(kernels, name) {
						kernels = append(kernels, name)
					}
					needs[name] = append(needs[name], found[name].String())
				}
			}
		}
	}
	return compareText(resourceFile(), table(kernels, columns, needs), update)
}

// table writes the needs of kernels; equal neighbours are written once.
func table(kernels, columns []string, needs map[string][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What kernels need: registers / bytes of local memory / bytes spilled / bytes of shared memory, by\n")
	fmt.Fprintf(&b, "# go run ./internal/ptx -assemble DIR,DIR -update. One number for all of: %s.\n", strings.Join(columns, ", "))
	for _, k := range kernels {
		values := needs[k]
		if all := slices.Compact(slices.Clone(values)); len(all) == 1 {
			values = all
		}
		fmt.Fprintf(&b, "%-24s %s\n", k, strings.Join(values, " "))
	}
	return b.String()
}

// compareText holds a text against a file, or records it there.
func compareText(name, text string, update bool) error {
	if update {
		return os.WriteFile(name, []byte(text), 0o644)
	}
	was, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if string(was) != text {
		return fmt.Errorf("%s is not what the tools say now; -update records it, to be reviewed:\n%s", name, changes(string(was), text))
	}
	return nil
}

// changes lists the lines that only one of two texts has.
func changes(was, is string) string {
	var b strings.Builder
	old, now := strings.Split(was, "\n"), strings.Split(is, "\n")
	for _, line := range old {
		if !slices.Contains(now, line) {
			b.WriteString("-" + line + "\n")
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			b.WriteString("+" + line + "\n")
		}
	}
	return b.String()
}

// ptxasVersion is the release of an assembler.
func ptxasVersion(ptxas string) (string, error) {
	out, err := exec.Command(ptxas, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", ptxas, err)
	}
	m := regexp.MustCompile(`release (\d+\.\d+)`).FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s: no release in %q", ptxas, out)
	}
	return string(m[1]), nil
}

// assemble gives the kernels in a file of PTX and what they need. A warning is an error,
// but for that of large local arrays there is none.
func assemble(ptxas, arch, ptx string) (names []string, needs map[string]need, err error) {
	out, err := exec.Command(ptxas, "-v", "-arch="+arch, "-o", os.DevNull, ptx).CombinedOutput()
	if err != nil {
		return nil, nil, fmt.Errorf("%s for %s: %w\n%s", ptx, arch, err, out)
	}
	if bytes.Contains(out, []byte("warning")) {
		return nil, nil, fmt.Errorf("%s for %s: ptxas warns:\n%s", ptx, arch, out)
	}
	needs = map[string]need{}
	blocks := strings.Split(string(out), "Compiling entry function '")
	for _, block := range blocks[1:] {
		name, rest, _ := strings.Cut(block, "'")
		get := func(pattern string) string {
			if m := regexp.MustCompile(pattern).FindStringSubmatch(rest); m != nil {
				return m[1]
			}
			return "0"
		}
		names = append(names, name)
		needs[name] = need{get(`Used (\d+) registers`), get(`(\d+) bytes stack frame`), get(`(\d+) bytes spill stores`), get(`(\d+) bytes smem`)}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("%s for %s: ptxas names no kernel:\n%s", ptx, arch, out)
	}
	return names, needs, nil
}

// compileByNVCC compiles all sources to PTX by another compiler.
func compileByNVCC(dir, to string) error {
	nvcc, err := tool(dir, "bin/nvcc")
	if err != nil {
		return err
	}
	files, err := sources()
	if err != nil {
		return err
	}
	for _, cu := range files {
		out, err := filepath.Abs(filepath.Join(to, filepath.Base(ptxOf(cu))))
		if err != nil {
			return err
		}
		if err := os.Remove(out); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // what is there in the end is of this compilation
		}
		cmd := exec.Command(nvcc, "-ptx", "-std=c++17", "-arch=compute_80", "-fmad=false", "-lineinfo", "-o", out, filepath.Base(cu))
		cmd.Dir = filepath.Dir(cu)
		if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
			return fmt.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, said)
		}
		if _, err := os.Stat(out); err != nil {
			return fmt.Errorf("%s made nothing: %w", strings.Join(cmd.Args, " "), err)
		}
	}
	return nil
}
