package golden

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
)

//go:embed reference/*.txt
var referenceFiles embed.FS

// Reference is what an independent implementation, PyTorch in float64, computed
// for a small model: reference/make_reference.py makes the files.
type Reference struct {
	Model     model.Config // without groups: any give the same exact values
	Optimizer optim.Config // AdamW; the decay is that of matrices
	Params    []string     // parameter names, in the file's order
	// Initial are the weights before the first step, by parameter, row by row.
	Initial map[string][]float32
	// Gradient is that of the first step's mean loss, before clipping.
	Gradient map[string][]float64
	// Final are the weights after the last step.
	Final map[string][]float64
	Steps []ReferenceStep
}

// ReferenceStep is one optimizer step: its global batch, and what came of it.
type ReferenceStep struct {
	// Tokens and Targets hold Seqs sequences of the model's SeqLen tokens;
	// negative targets are ignored.
	Tokens, Targets []int32
	Seqs            int
	Valid           int     // targets that are not ignored
	Loss            float64 // mean over the valid targets, in nats
	Norm            float64 // of the gradient, before clipping
	LR              float64
}

// References names the reference files.
func References() []string { return []string{"tied", "untied"} }

// LoadReference reads the named reference file; it refuses unknown names.
func LoadReference(name string) (*Reference, error) {
	if !slices.Contains(References(), name) {
		return nil, fmt.Errorf("reference %q: known are %s", name, strings.Join(References(), ", "))
	}
	f, err := referenceFiles.Open("reference/" + name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("reference %s: %w", name, err)
	}
	defer f.Close()
	r, err := ParseReference(f)
	if err != nil {
		return nil, fmt.Errorf("reference %s: %w", name, err)
	}
	return r, nil
}

// ParseReference reads the format of make_reference.py. Errors name the line.
// It refuses a file in which a parameter of the model lacks a value, or a step
// lacks a sequence.
func ParseReference(from io.Reader) (*Reference, error) {
	p := referenceParser{r: &Reference{Initial: map[string][]float32{}, Gradient: map[string][]float64{}, Final: map[string][]float64{}}}
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		if err := p.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return p.r, p.complete()
}

type referenceParser struct {
	r      *Reference
	values func(x float64) // takes the values of the tensor that is being read
}

func (p *referenceParser) line(s string) error {
	if strings.HasPrefix(s, "#") {
		return nil
	}
	f := strings.Fields(s)
	if len(f) == 0 {
		return nil
	}
	if strings.HasPrefix(s, "\t") {
		return p.numbers(f)
	}
	p.values = nil
	switch kind := f[0]; kind {
	case "config":
		return p.config(f[1:])
	case "optimizer":
		return p.optimizer(f[1:])
	case "initial", "gradient", "final":
		return p.tensor(kind, f[1:])
	case "tokens", "targets":
		return p.sequence(kind, f[1:])
	case "step":
		return p.step(f[1:])
	}
	return fmt.Errorf("unknown record %q", f[0])
}

// numbers takes one line of a tensor.
func (p *referenceParser) numbers(f []string) error {
	if p.values == nil {
		return fmt.Errorf("values outside a tensor")
	}
	for _, s := range f {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return err
		}
		p.values(x)
	}
	return nil
}

// tensor starts a tensor: name and shape.
func (p *referenceParser) tensor(kind string, f []string) error {
	if len(f) != 2 {
		return fmt.Errorf("%s: want a name and a shape", kind)
	}
	name, to := f[0], p.r.Gradient
	if kind == "initial" {
		p.r.Params = append(p.r.Params, name)
		p.values = func(x float64) { p.r.Initial[name] = append(p.r.Initial[name], float32(x)) }
		return nil
	}
	if kind == "final" {
		to = p.r.Final
	}
	p.values = func(x float64) { to[name] = append(to[name], x) }
	return nil
}

// stepAt is step n, which is one that has begun or the next one.
func (p *referenceParser) stepAt(s string) (*ReferenceStep, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > len(p.r.Steps) {
		return nil, fmt.Errorf("step %q: want one of the %d so far or the next", s, len(p.r.Steps))
	}
	if n == len(p.r.Steps) {
		p.r.Steps = append(p.r.Steps, ReferenceStep{})
	}
	return &p.r.Steps[n], nil
}

// sequence takes the tokens or targets of one sequence: step, place, numbers.
func (p *referenceParser) sequence(kind string, f []string) error {
	if len(f) != 2+p.r.Model.SeqLen {
		return fmt.Errorf("%s: want step, sequence and %d numbers", kind, p.r.Model.SeqLen)
	}
	st, err := p.stepAt(f[0])
	if err != nil {
		return err
	}
	to := &st.Tokens
	if kind == "targets" {
		to = &st.Targets
	}
	if f[1] != strconv.Itoa(len(*to)/p.r.Model.SeqLen) {
		return fmt.Errorf("%s: sequence %s is out of order", kind, f[1])
	}
	for _, s := range f[2:] {
		x, err := strconv.ParseInt(s, 10, 32)
		if err != nil || x >= int64(p.r.Model.Vocab) {
			return fmt.Errorf("%s %q: want a number below %d", kind, s, p.r.Model.Vocab)
		}
		*to = append(*to, int32(x))
	}
	st.Seqs = len(st.Tokens) / p.r.Model.SeqLen
	return nil
}

func (p *referenceParser) step(f []string) error {
	if len(f) == 0 {
		return fmt.Errorf("step: want its number")
	}
	st, err := p.stepAt(f[0])
	if err != nil {
		return err
	}
	return assign(f[1:], map[string]any{"valid": &st.Valid, "loss": &st.Loss, "norm": &st.Norm, "lr": &st.LR})
}

func (p *referenceParser) config(f []string) error {
	c := &p.r.Model
	err := assign(f, map[string]any{"name": &c.Name, "vocab": &c.Vocab, "hidden": &c.Hidden, "layers": &c.Layers, "heads": &c.Heads,
		"kv_heads": &c.KVHeads, "head_dim": &c.HeadDim, "intermediate": &c.Intermediate, "seq_len": &c.SeqLen, "tied": &c.Tied,
		"qkv_bias": &c.QKVBias, "linear_bias": &c.LinearBias, "norm_eps": &c.NormEps, "rope_theta": &c.RopeTheta})
	if err != nil {
		return err
	}
	return c.Validate()
}

func (p *referenceParser) optimizer(f []string) error {
	c := &p.r.Optimizer
	err := assign(f, map[string]any{"lr": &c.LR, "beta1": &c.Beta1, "beta2": &c.Beta2, "eps": &c.Eps, "decay": &c.Decay, "clip": &c.Clip,
		"warmup": &c.Warmup, "horizon": &c.Horizon, "min_lr": &c.MinLR})
	if err != nil {
		return err
	}
	return c.Validate()
}

// assign sets every target from one key=value field; none may be missing,
// unknown or given twice.
func assign(fields []string, to map[string]any) error {
	for _, f := range fields {
		key, val, _ := strings.Cut(f, "=")
		var err error
		switch dst := to[key].(type) {
		case *string:
			*dst = val
		case *int:
			*dst, err = strconv.Atoi(val)
		case *float64:
			*dst, err = strconv.ParseFloat(val, 64)
		case *bool:
			*dst, err = strconv.ParseBool(val)
		default:
			err = fmt.Errorf("unknown or given twice")
		}
		if err != nil {
			return fmt.Errorf("%q: %w", f, err)
		}
		delete(to, key)
	}
	for key := range to {
		return fmt.Errorf("%s is missing", key)
	}
	return nil
}

// complete refuses a reference with missing values.
func (p *referenceParser) complete() error {
	r := p.r
	if len(r.Steps) == 0 {
		return fmt.Errorf("no step")
	}
	for i := range r.Steps {
		if st := &r.Steps[i]; st.Seqs == 0 || len(st.Targets) != len(st.Tokens) || st.Valid == 0 {
			return fmt.Errorf("step %d: %d tokens, %d targets, %d of them valid", i, len(st.Tokens), len(st.Targets), st.Valid)
		}
	}
	l := model.NewLayout(r.Model, model.Whole(r.Model))
	for i := range l.Params {
		q := &l.Params[i]
		if q.Off >= l.Owned {
			continue
		}
		if a, b, c := len(r.Initial[q.Name]), len(r.Gradient[q.Name]), len(r.Final[q.Name]); a != q.Len() || b != q.Len() || c != q.Len() {
			return fmt.Errorf("%s: %d initial, %d gradient and %d final values, want %d each", q.Name, a, b, c, q.Len())
		}
	}
	return nil
}
