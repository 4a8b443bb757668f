package golden

import (
	"bufio"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

//go:embed fingerprints
var fingerprintFiles embed.FS

// FingerprintSteps is the number of optimizer steps that golden runs record.
const FingerprintSteps = 20

// Record is the command that makes the files of golden/fingerprints anew.
const Record = "make golden-fingerprints"

// Fingerprints are the recorded fingerprints of a golden run, after every step:
// one value for all plans, backends and hardware. Results of another arithmetic,
// text or configuration are not comparable.
type Fingerprints struct {
	Name       string // "nano-adamw-tied"
	Arithmetic int
	TextHash   string // SHA-256 of the training text
	// Spec is the configuration of one rank.
	Spec spec.Config
	// Clipped lists the steps in which the gradient was clipped.
	Clipped []int
	Steps   []spec.Fingerprint
}

// Variant is a named configuration with a golden run.
type Variant struct {
	Name   string
	Config spec.Config
}

// Variants are the golden runs: both fixtures, both optimizers, head tied and
// not, and one with biases on every projection. The clipping norms lie within
// the gradient norms of the first steps, so that some steps clip and others do
// not.
func Variants() ([]Variant, error) {
	var out []Variant
	for _, v := range []struct {
		config, optimizer, kind string
		clip                    float64
	}{
		{"nano", "adamw", "untied", 3.1},
		{"nano", "adamw", "tied", 2.7},
		{"nano", "adamw", "biased", 2.78},
		{"nano", "sgd", "untied", 3.1},
		{"nano", "sgd", "tied", 2.7},
		{"odd", "adamw", "untied", 3.2},
		{"odd", "adamw", "tied", 2.7},
		{"odd", "sgd", "untied", 3.2},
		{"odd", "sgd", "tied", 2.7},
	} {
		cfg, err := spec.Preset(v.config)
		if err != nil {
			return nil, err
		}
		cfg.Model.Tied = v.kind == "tied"
		if v.kind == "biased" {
			cfg.Model.QKVBias, cfg.Model.LinearBias, cfg.Model.InitBias = true, true, 0.1
		}
		cfg.Optimizer.Clip = v.clip
		if v.optimizer == "sgd" {
			descend(&cfg)
		}
		cfg.Steps = FingerprintSteps
		cfg.Recording = spec.Recording{Digests: true, KeepGoing: true}
		if err := cfg.Validate(); err != nil {
			return nil, err
		}
		out = append(out, Variant{v.config + "-" + v.optimizer + "-" + v.kind, cfg})
	}
	return out, nil
}

// descend trains a fixture with SGD, at rates and decays of its own.
func descend(c *spec.Config) {
	c.Optimizer.Name, c.Optimizer.LR, c.Optimizer.Decay = "sgd", 0.1, 0.01
	if c.Model.Name == "odd" {
		c.Optimizer.LR, c.Optimizer.Decay = 0.07, 0.02
	}
}

// Task is what a configuration trains, without how: plan, backend, evidence and
// the number of steps change no fingerprint.
func Task(c spec.Config) spec.Config {
	c.Plan, c.Backend, c.Recording, c.Steps = plan.Plan{DP: 1}, "", spec.Recording{}, FingerprintSteps
	c.Text, c.TextHash = "", ""
	return c
}

// LoadFingerprints reads the golden run of a variant. A variant without a file
// is an error that names the command which records it.
func LoadFingerprints(name string) (*Fingerprints, error) {
	f, err := fingerprintFiles.Open("fingerprints/" + name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("no golden fingerprints of %s; %q records them", name, Record)
	}
	defer f.Close()
	g, err := ParseFingerprints(f)
	if err != nil {
		return nil, fmt.Errorf("golden fingerprints of %s: %w", name, err)
	}
	return g, nil
}

// Comparable is nil if a run of the task under the given arithmetic and on the
// given text must have the golden fingerprints; otherwise it says what differs.
func (g *Fingerprints) Comparable(task spec.Config, arithmetic int, textHash string) error {
	switch {
	case g.Arithmetic != arithmetic:
		return fmt.Errorf("golden %s is of arithmetic version %d, this is %d; %q records it anew", g.Name, g.Arithmetic, arithmetic, Record)
	case g.TextHash != textHash:
		return fmt.Errorf("golden %s was made on text %s, this run on %s", g.Name, g.TextHash, textHash)
	}
	want, got := Task(g.Spec), Task(task)
	if a, b := want.Spec(), got.Spec(); string(a) != string(b) {
		return fmt.Errorf("golden %s is of another configuration, %s; this is %s", g.Name, a, b)
	}
	return nil
}

// Format writes the file of a golden run: a header that says where the numbers
// come from, then one line per step.
func (g *Fingerprints) Format(w io.Writer) error {
	task := Task(g.Spec)
	var clipped []string
	for _, s := range g.Clipped {
		clipped = append(clipped, strconv.Itoa(s))
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# golden fingerprints: %s\n", g.Name)
	fmt.Fprintf(b, "# arithmetic: %d\n", g.Arithmetic)
	fmt.Fprintf(b, "# text: %s\n", g.TextHash)
	fmt.Fprintf(b, "# spec: %s\n", task.Spec())
	fmt.Fprintf(b, "# clipped: %s\n", strings.Join(clipped, " "))
	fmt.Fprintf(b, "# made by: %s\n", Record)
	for i, s := range g.Steps {
		fmt.Fprintf(b, "%d %s\n", i, s)
	}
	return b.Flush()
}

// ParseFingerprints reads what Format writes; errors name the line. It refuses a
// file without steps, with steps out of order, or without a header line.
func ParseFingerprints(r io.Reader) (*Fingerprints, error) {
	g := &Fingerprints{}
	missing := []string{"golden fingerprints", "arithmetic", "text", "spec", "clipped"}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		var err error
		switch head, isHead := strings.CutPrefix(line, "#"); {
		case line == "":
		case isHead:
			key, value, _ := strings.Cut(head, ":")
			key = strings.TrimSpace(key)
			err = g.header(key, strings.TrimSpace(value))
			missing = slices.DeleteFunc(missing, func(s string) bool { return s == key })
		default:
			err = g.step(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no header line %q", missing[0])
	}
	if len(g.Steps) == 0 {
		return nil, fmt.Errorf("no steps")
	}
	return g, nil
}

func (g *Fingerprints) header(key, value string) (err error) {
	switch key {
	case "golden fingerprints":
		g.Name = value
	case "arithmetic":
		g.Arithmetic, err = strconv.Atoi(value)
	case "text":
		g.TextHash = value
	case "spec":
		g.Spec, err = spec.Parse(json.RawMessage(value))
	case "clipped":
		for _, f := range strings.Fields(value) {
			s, e := strconv.Atoi(f)
			if e != nil {
				return fmt.Errorf("clipped: %w", e)
			}
			g.Clipped = append(g.Clipped, s)
		}
	}
	return err
}

// step reads "step weights=<32 hex> moments=<32 hex> loss=<8 hex>".
func (g *Fingerprints) step(line string) error {
	if kernels.Simulated(line) {
		return fmt.Errorf("%q: is of a simulated device, and nothing that is recorded may be", line)
	}
	f := strings.Fields(line)
	if len(f) != 4 || f[0] != strconv.Itoa(len(g.Steps)) {
		return fmt.Errorf("%q: want step %d, weights=, moments=, loss=", line, len(g.Steps))
	}
	weights, ok1 := strings.CutPrefix(f[1], "weights=")
	moments, ok2 := strings.CutPrefix(f[2], "moments=")
	loss, ok3 := strings.CutPrefix(f[3], "loss=")
	if !ok1 || !ok2 || !ok3 || len(weights) != 32 || len(moments) != 32 || len(loss) != 8 {
		return fmt.Errorf("%q: want weights=<32 hex> moments=<32 hex> loss=<8 hex>", line)
	}
	var s spec.Fingerprint
	if err := s.Weights.UnmarshalText([]byte(weights)); err != nil {
		return err
	}
	if err := s.Moments.UnmarshalText([]byte(moments)); err != nil {
		return err
	}
	bits, err := strconv.ParseUint(loss, 16, 32)
	if err != nil {
		return err
	}
	s.Loss = uint32(bits)
	g.Steps = append(g.Steps, s)
	return nil
}
