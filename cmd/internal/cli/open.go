package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
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
func Backends() []string { return []string{"cpu", "ref"} }

// OpenBackend gives the maker of a rank's backend. An unknown name, or an
// instruction set that this processor lacks, is a usage error. The ranks of a
// process share one cpu backend and its threads.
func OpenBackend(name string) (func(rank int) (kernels.Backend, error), error) {
	switch name {
	case "cpu":
		isa, err := cpu.ParseISA(os.Getenv(ISAVariable))
		if err != nil {
			return nil, Usagef("%s: %w", ISAVariable, err)
		}
		b, err := cpu.New(cpu.Options{ISA: isa})
		if err != nil {
			return nil, err
		}
		return func(int) (kernels.Backend, error) { return b, nil }, nil
	case "ref":
		return func(int) (kernels.Backend, error) { return ref.New[float32](), nil }, nil
	}
	return nil, Usagef("backend %q: known are %s", name, strings.Join(Backends(), ", "))
}

// Given opens the training text that a flag names: Text, and - for stdin, which the
// names in histories never mean.
func Given(name string, stdin io.Reader) (data.Text, error) {
	if name == "-" {
		return data.Read(name, stdin)
	}
	return Text(name)
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

// maxConfigFile bounds a model configuration that is read from a file.
const maxConfigFile = 1 << 20

// Preset is the training configuration of a named model, or of the one described
// by a JSON file whose name ends in .json: the fields of a model.Config and,
// where the defaults do not suit, an "optimizer" object with those of an
// optim.Config (name, lr, beta1, beta2, eps, momentum, decay, ...).
func Preset(name string) (spec.Config, error) {
	if !strings.HasSuffix(name, ".json") {
		return spec.Preset(name)
	}
	b, err := files.Read(name, maxConfigFile)
	if err != nil {
		return spec.Config{}, fmt.Errorf("config: %w", err)
	}
	return configOf(b, name)
}

// configOf is the configuration that the content of a file of that name describes.
func configOf(b []byte, name string) (spec.Config, error) {
	c := spec.Config{Text: "default", Seed: 1}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	file := struct {
		*model.Config
		Optimizer *optim.Config `json:"optimizer"`
	}{&c.Model, &c.Optimizer}
	if err := dec.Decode(&file); err != nil {
		return c, fmt.Errorf("config %s: %w", name, err)
	}
	if dec.More() {
		return c, fmt.Errorf("config %s: holds more than one value", name)
	}
	if c.Model.Name == "" {
		c.Model.Name = strings.TrimSuffix(filepath.Base(name), ".json")
	}
	if _, err := model.Named(c.Model.Name); err == nil {
		return c, fmt.Errorf("config %s: name %q: is that of a named configuration; give it another", name, c.Model.Name)
	}
	if names.Printable(c.Model.Name) != c.Model.Name {
		return c, fmt.Errorf("config %s: name %q: must be of printable characters", name, c.Model.Name)
	}
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("config %s: %w", name, err)
	}
	return c, nil
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
