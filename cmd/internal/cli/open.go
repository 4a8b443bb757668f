package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// DefaultBackend is the fastest one that every machine has.
const DefaultBackend = "cpu"

// ISAVariable is the environment variable that forces the instruction set of
// the cpu backend: ref, avx2 or avx512.
const ISAVariable = "LOCKSTEP_ISA"

// Backends lists the names that OpenBackend knows.
func Backends() []string { return []string{"cpu", "ref", CUDA} }

// OpenBackend is what Open opens, for who asks no more of it than backends.
func OpenBackend(name string, devices Devices) (func(rank int) (kernels.Backend, error), error) {
	o, err := Open(name, devices, nil)
	if err != nil {
		return nil, err
	}
	return o.Backend, nil
}

// Open opens a backend. An unknown name, an instruction set that this processor lacks, or a
// variable that the simulator of GPUs does not take is a usage error; GPUs that this machine
// or this program lacks are a gpu.UnavailableError. The ranks of a process share one cpu backend and its threads,
// which allocates from pool what that has; nil has nothing.
func Open(name string, devices Devices, pool kernels.Pool) (*Opened, error) {
	switch name {
	case "cpu":
		isa, err := cpu.ParseISA(os.Getenv(ISAVariable))
		if err != nil {
			return nil, Usagef("%s: %w", ISAVariable, err)
		}
		b, err := cpu.New(cpu.Options{ISA: isa, Pool: pool})
		if err != nil {
			return nil, err
		}
		return &Opened{Backend: func(int) (kernels.Backend, error) { return b, nil }}, nil
	case "ref":
		return &Opened{Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }}, nil
	case CUDA:
		c, err := devices.chosen()
		if err != nil {
			return nil, err
		}
		return openCUDA(c)
	}
	return nil, Usagef("backend %q: known are %s", name, strings.Join(Backends(), ", "))
}

// Given opens the training text that a flag names: Text, and - for stdin, which the
// names in histories never mean. It does not wait for what comes after the end of ctx.
// What cannot be read is a usage error.
func Given(ctx context.Context, name string, stdin io.Reader) (data.Text, error) {
	if t, ok := data.BuiltIn(name); ok {
		return t, nil // at once, so that even then a report says what was not run
	}
	text, err := files.Await(ctx, func() (data.Text, error) {
		if name == "-" {
			return data.Read("stdin", stdin)
		}
		return Text(name)
	})
	if err != nil && ctx.Err() != nil {
		return text, fmt.Errorf("text %q: %w", name, Why(ctx, err))
	}
	if name == "-" {
		text.Name = name
	}
	return text, AsUsage(err)
}

// Text opens a training text: a built-in one by its name, anything else is a file,
// or, where there is no such file, the beginning of a text: "default[:5000]".
func Text(name string) (data.Text, error) {
	if t, ok := data.BuiltIn(name); ok {
		return t, nil
	}
	t, err := data.Load(name)
	if _, _, ok := data.Beginning(name); ok && errors.Is(err, fs.ErrNotExist) {
		return data.Part(name, Text)
	}
	return t, err
}

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	f, ok := under(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width is the number of columns of the terminal w; 80 where unknown.
func Width(w io.Writer) int {
	if f, ok := under(w).(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}
