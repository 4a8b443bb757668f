// Command portable builds cmd/train for an architecture, at every level of
// instructions that the compiler knows for it, runs both fixtures on every
// instruction set of the cpu backend, on one thread and on two, and compares the
// fingerprints with the golden ones: one answer, whatever built or ran it.
//
// Another architecture than this machine's runs under qemu-user (Debian: apt-get
// install qemu-user).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/internal/source"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// steps is how many steps each run takes.
const steps = 3

func main() {
	arch := flag.String("arch", runtime.GOARCH, "architecture: amd64 or arm64")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	wrong, err := check(ctx, *arch, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "portable:", err)
		os.Exit(4)
	}
	if wrong > 0 {
		fmt.Fprintf(os.Stderr, "portable: %d fingerprints are not the golden ones\n", wrong)
		os.Exit(1)
	}
}

// check makes and compares all runs; it gives the number of wrong ones.
func check(ctx context.Context, arch string, w io.Writer) (wrong int, err error) {
	through, err := emulator(arch, runtime.GOARCH, exec.LookPath)
	if err != nil {
		return 0, err
	}
	fixtures, err := fixtures()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "portable")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for _, level := range levels(arch) {
		bin := filepath.Join(dir, "train"+level)
		if err := build(ctx, bin, arch, level); err != nil {
			return wrong, err
		}
		for _, r := range runs(len(through) == 0, cpu.ISAs()) {
			for _, f := range fixtures {
				got, err := r.fingerprint(ctx, slices.Concat(through, []string{bin}), f.config)
				if err != nil {
					return wrong, fmt.Errorf("%s %s, %s, %s: %w", arch, level, r, f.config, err)
				}
				if !judge(w, fmt.Sprintf("%s %-2s %s %-4s", arch, level, r, f.config), got, f.want) {
					wrong++
				}
			}
		}
	}
	return wrong, nil
}

// judge prints a line and reports whether the fingerprint is the golden one.
func judge(w io.Writer, name, got, want string) bool {
	if got != want {
		fmt.Fprintf(w, "%s wrong\n  got  %s\n  want %s\n", name, got, want)
		return false
	}
	fmt.Fprintf(w, "%s ok\n", name)
	return true
}

// emulator is the command that runs programs of arch here, empty where the
// machine does.
func emulator(arch, host string, find func(string) (string, error)) ([]string, error) {
	if arch == host {
		return nil, nil
	}
	machine, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	if !ok {
		return nil, fmt.Errorf("architecture %q: want amd64 or arm64", arch)
	}
	for _, name := range []string{"qemu-" + machine, "qemu-" + machine + "-static"} {
		if path, err := find(name); err == nil {
			return []string{path}, nil
		}
	}
	return nil, fmt.Errorf("no qemu-%s to run %s programs with: install qemu-user (Debian: apt-get install qemu-user)", machine, arch)
}

// levels are the values of GOAMD64 to build at; one build elsewhere.
func levels(arch string) []string {
	if arch == "amd64" {
		return []string{"v1", "v3"}
	}
	return []string{""}
}

func build(ctx context.Context, bin, arch, level string) error {
	root, err := source.Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/train")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
	if level != "" {
		cmd.Env = append(cmd.Env, "GOAMD64="+level)
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	return nil
}

// run is how a program runs: on which instruction set, empty for its own
// choice, with how many threads.
type run struct {
	isa     string
	threads int
}

func (r run) String() string { return fmt.Sprintf("%-6s threads %d", r.isa, r.threads) }

// runs are all instruction sets of this machine, or the program's own choice
// where it is emulated, each on one thread and on two.
func runs(native bool, isas []string) (out []run) {
	if !native {
		isas = []string{""}
	}
	for _, isa := range isas {
		out = append(out, run{isa, 1}, run{isa, 2})
	}
	return out
}

// patience is how long a run may take, which under an emulator is a minute.
const patience = 5 * time.Minute

// fingerprint trains a fixture and gives the fingerprint that the program ends
// with.
func (r run) fingerprint(ctx context.Context, program []string, config string) (string, error) {
	args := slices.Concat(program[1:], []string{"--config", config, "--steps", strconv.Itoa(steps), "--fingerprint"})
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	cmd := exec.CommandContext(ctx, program[0], args...)
	cmd.Env = append(os.Environ(), "LOCKSTEP_ISA="+r.isa, "GOMAXPROCS="+strconv.Itoa(r.threads))
	// As the work of a supervisor, which this is: an emulator may hang where a program of
	// several threads starts another one.
	ends, held, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer held.Close()
	cmd.Env, cmd.ExtraFiles = append(cmd.Env, "LOCKSTEP_SUPERVISOR="+strconv.Itoa(os.Getpid())), []*os.File{ends}
	out, err := cmd.Output()
	ends.Close()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: has not ended within %v", cmd, patience)
	}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return "", err
	}
	return last(string(out))
}

// last is the fingerprint in the last line of what train printed.
func last(out string) (string, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	f, ok := strings.CutPrefix(lines[len(lines)-1], "fingerprint ")
	if !ok {
		return "", fmt.Errorf("no fingerprint in the last line, %q", lines[len(lines)-1])
	}
	return f, nil
}

// fixture is a configuration and its golden fingerprint after the last step.
type fixture struct{ config, want string }

// fixtures are those whose golden run is the configuration as train knows it.
func fixtures() (out []fixture, err error) {
	for _, f := range [][2]string{{"nano", "nano-adamw-untied"}, {"odd", "odd-adamw-tied"}} {
		name := f[1]
		g, err := golden.LoadFingerprints(name)
		if err != nil {
			return nil, err
		}
		c, err := spec.Preset(f[0])
		if err != nil {
			return nil, err
		}
		if err := g.Comparable(c, kernels.Arithmetic, data.Default().Hash()); err != nil {
			return nil, err
		}
		if len(g.Steps) < steps {
			return nil, fmt.Errorf("golden %s has %d steps: want %d", name, len(g.Steps), steps)
		}
		out = append(out, fixture{f[0], g.Steps[steps-1].String()})
	}
	return out, nil
}
