//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary be the command.
func TestMain(m *testing.M) {
	if os.Getenv("PTX_TEST_AS_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command runs the command where root is that of a module.
func command(t *testing.T, root string, env []string, args ...string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = root
	cmd.Env = append(append(os.Environ(), "PTX_TEST_AS_COMMAND=1"), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), errs.String()
}

// write puts a text into a file below a directory.
func write(t *testing.T, root, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// module is a module with two sources of kernels and something for PTX of them.
func module(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n", "kernels/cuda/a.cu": "// a\n", "kernels/cuda/b.cu": "// b\n", "kernels/cuda/ptx/a.ptx": "// fill\n", "kernels/cuda/ptx/b.ptx": "// scale\n"} {
		write(t, root, name, text, 0o644)
	}
	return root
}

// ptxas is an assembler that takes PTX whose first line names a kernel; what it says of it,
// and how it ends, the environment changes.
const ptxas = `#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, ${SAYS_RELEASE-release 12.9, V12.9.86}"; exit 0; fi
for file; do :; done
read -r _ kernel < "$file" || exit 9
case "$1 $2 $3 $4" in "-v -arch="sm_*" -o /dev/null") ;; *) exit 8 ;; esac
[ -z "$SAYS" ] || echo "$SAYS" >&2
[ "$kernel $2" = "$FAILS" ] && { echo "ptxas fatal   : it is wrong" >&2; exit 255; }
[ -n "$SAYS_NOTHING" ] && exit 0
registers=8 stack=0 spilled=0
[ "$kernel $2" = "$NEEDS_MORE" ] && registers=9
[ "$kernel $2" = "$SPILLS" ] && stack=16 spilled=12
cat >&2 <<TEXT
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '$kernel' for '${2#-arch=}'
ptxas info    : Function properties for $kernel
    $stack bytes stack frame, $spilled bytes spill stores, $spilled bytes spill loads
ptxas info    : Used $registers registers, 360 bytes cmem[0]
TEXT
`

// TestAssemblersThatFail: what an assembler warns of or refuses, and each number of what a
// kernel needs that is another on one architecture, ends the command with 1 and is named.
func TestAssemblersThatFail(t *testing.T) {
	root := module(t)
	write(t, root, "kit/lib/python3.11/site-packages/nvidia/cuda_nvcc/bin/ptxas", ptxas, 0o755)
	assemble := []string{"-assemble", "kit"}
	if code, said := command(t, root, nil, assemble...); code != 1 || !strings.Contains(said, "resources.txt: no such file") {
		t.Errorf("without a reviewed text: %d, %s", code, said)
	}
	if code, said := command(t, root, nil, append(assemble, "-update")...); code != 0 || said != "" {
		t.Fatalf("%d, %s", code, said)
	}
	reviewed, err := os.ReadFile(filepath.Join(root, "kernels/cuda/ptx/resources.txt"))
	const lines = "12.9 sm_80, 12.9 sm_90, 12.9 sm_100, 12.9 sm_120.\nfill                     8/0/0/0\nscale                    8/0/0/0\n"
	if err != nil || !strings.HasSuffix(string(reviewed), lines) {
		t.Fatalf("%v: %s", err, reviewed)
	}
	for _, c := range []struct{ env, want string }{
		{"", ""},
		{"SAYS=ptxas warning : something is large", "a.ptx for sm_80: ptxas warns:\nptxas warning : something is large"},
		{"NEEDS_MORE=scale -arch=sm_100", "-scale                    8/0/0/0\n+scale                    8/0/0/0 8/0/0/0 9/0/0/0 8/0/0/0\n"},
		{"SPILLS=fill -arch=sm_120", "-fill                     8/0/0/0\n+fill                     8/0/0/0 8/0/0/0 8/0/0/0 8/16/12/0\n"},
		{"FAILS=scale -arch=sm_90", "b.ptx for sm_90: exit status 255\nptxas fatal   : it is wrong"},
		{"SAYS_NOTHING=1", "a.ptx for sm_80: ptxas names no kernel"},
		{"SAYS_RELEASE=of another form", `no release in "Cuda compilation tools, of another form`},
		{"SAYS_RELEASE=release 13.0", "13.0 sm_80"},
	} {
		code, said := command(t, root, []string{c.env}, assemble...)
		if want := map[bool]int{true: 0, false: 1}[c.want == ""]; code != want || !strings.Contains(said, c.want) || want == 0 && said != "" {
			t.Errorf("%s: %d, %s; want %q", c.env, code, said, c.want)
		}
	}
	if code, said := command(t, root, nil, "-assemble", "none"); code != 1 || !strings.Contains(said, "bin/ptxas in none: found []") {
		t.Errorf("without a toolkit: %d, %s", code, said)
	}
}

// nvcc is a compiler; what it says and how it ends the environment changes.
const nvcc = `#!/bin/sh
echo "$*" >> ../../calls
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
[ -z "$SAYS" ] || echo "$SAYS" >&2
[ "$FAILS" = "$1" ] && exit 2
[ "$IDLE" = "$1" ] || cp "$1" "$out"
`

// TestCompilersThatFail: what nvcc says, refuses or does not make ends the command with 1,
// and is named.
func TestCompilersThatFail(t *testing.T) {
	root := module(t)
	write(t, root, "kit/lib/python3.11/site-packages/nvidia/cu13/bin/nvcc", nvcc, 0o755)
	write(t, root, "out/else", "", 0o644)
	compile := []string{"-nvcc", "kit", "out"}
	for _, c := range []struct{ env, want string }{
		{"", ""},
		{"SAYS=a.cu(1): warning", "a.cu: <nil>\na.cu(1): warning"},
		{"FAILS=b.cu", "b.cu: exit status 2"},
		{"IDLE=b.cu", "b.ptx: no such file"},
	} {
		code, said := command(t, root, []string{c.env}, compile...)
		if want := map[bool]int{true: 0, false: 1}[c.want == ""]; code != want || !strings.Contains(said, c.want) || want == 0 && said != "" {
			t.Errorf("%s: %d, %s; want %q", c.env, code, said, c.want)
		}
		if c.env == "" {
			for _, name := range []string{"a", "b"} {
				if text, err := os.ReadFile(filepath.Join(root, "out", name+".ptx")); err != nil || string(text) != "// "+name+"\n" {
					t.Errorf("%s: %v, %q", name, err, text)
				}
			}
			calls, err := os.ReadFile(filepath.Join(root, "calls"))
			if err != nil || strings.Count(string(calls), " -fmad=false ") != 2 {
				t.Errorf("%v, %s", err, calls)
			}
		}
	}
	if code, said := command(t, root, nil, "-nvcc", "none", "out"); code != 1 || !strings.Contains(said, "bin/nvcc in none: found []") {
		t.Errorf("without a toolkit: %d, %s", code, said)
	}
	if code, _ := command(t, root, nil); code != 2 {
		t.Errorf("without flags: %d", code)
	}
}
