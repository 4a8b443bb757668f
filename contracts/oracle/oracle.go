package oracle

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/bound"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Oracle is contract.Oracle by running the dense model: the whole global batch
// as one micro-batch of one worker, in kernels/bound.
//
// Where the plan's tensor-parallel sums are canonical, its activations have the
// bits of the dense model's, whatever the data-parallel plan: then the bounds are
// those of the sums over tokens alone (bound.NewSums), gamma_n times the sum of
// magnitudes. Elsewhere they are those of the whole program (bound.New), which
// grow with its depth; where they no longer say anything, that is an error.
//
// It is safe for concurrent use and keeps its last answers, since replicas and
// clauses ask the same questions.
type Oracle struct {
	text func(name string) (data.Text, error)

	mu   sync.Mutex
	last []*answer // the latest question first
}

// kept is how many answers are kept: clauses that run side by side each ask about
// a step, and ahead about the one after it.
const kept = 8

// answer is that to one question, found once; every call of give has it.
type answer struct {
	key  [sha256.Size]byte
	give func() (map[string]contract.Bounded, error)
}

var _ contract.Oracle = (*Oracle)(nil)

// NewOracle makes an oracle that finds the training text of a spec by its name.
func NewOracle(text func(name string) (data.Text, error)) *Oracle { return &Oracle{text: text} }

// Gradient is the gradient of the mean loss of the step's global batch, before
// clipping, by parameter, and that loss under trace.Loss: values in float64 and
// the bounds of kernels/bound. It refuses a spec that does not parse, a text
// whose hash is not the spec's, a step without valid tokens, weights that do not
// fit the model, and to answer with bounds that say nothing. The answer is
// shared: callers must not change it.
func (o *Oracle) Gradient(cfg spec.Config, step int, weights map[string][]float32) (map[string]contract.Bounded, error) {
	return o.answer(question(cfg, step, weights), func() (map[string]contract.Bounded, error) {
		g, err := o.evaluate(cfg, step, weights)
		if err != nil {
			return nil, fmt.Errorf("oracle: %w", err)
		}
		return g, nil
	})
}

// answer gives the answer to a question, a kept one or what find finds.
func (o *Oracle) answer(key [sha256.Size]byte, find func() (map[string]contract.Bounded, error)) (map[string]contract.Bounded, error) {
	o.mu.Lock()
	i := slices.IndexFunc(o.last, func(x *answer) bool { return x.key == key })
	if i < 0 {
		i = 0
		o.last = slices.Insert(o.last, 0, &answer{key, sync.OnceValues(find)})
		o.last = o.last[:min(len(o.last), kept)]
	}
	x := o.last[i]
	o.mu.Unlock()
	return x.give()
}

func (o *Oracle) evaluate(cfg spec.Config, step int, weights map[string][]float32) (map[string]contract.Bounded, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b, err := o.batch(cfg, step)
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", step, err)
	}
	g, err := gradient(cfg, b, weights)
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", step, err)
	}
	return g, nil
}

// question identifies the arguments of Gradient.
func question(cfg spec.Config, step int, weights map[string][]float32) (key [sha256.Size]byte) {
	h := sha256.New()
	put := func(b []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	put(cfg.Spec())
	put(binary.LittleEndian.AppendUint64(nil, uint64(step)))
	for _, n := range slices.Sorted(maps.Keys(weights)) {
		put([]byte(n))
		b := make([]byte, 0, 4*len(weights[n]))
		for _, x := range weights[n] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		put(b)
	}
	h.Sum(key[:0])
	return key
}

// batch is the step's global batch as one micro-batch.
func (o *Oracle) batch(cfg spec.Config, step int) (model.Batch, error) {
	var b model.Batch
	text, err := o.text(cfg.Text)
	if err != nil {
		return b, err
	}
	if cfg.TextHash != "" && text.Hash() != cfg.TextHash {
		return b, fmt.Errorf("text %s has the hash %s, the run's has %s", cfg.Text, text.Hash(), cfg.TextHash)
	}
	set, err := cfg.Set(text)
	if err != nil {
		return b, err
	}
	seqs := set.Step(step)
	valid := 0
	for _, s := range seqs {
		b.Tokens = append(b.Tokens, s.Tokens...)
		b.Targets = append(b.Targets, s.Targets...)
		valid += s.Valid
	}
	if valid == 0 {
		return b, data.ErrNoTokens
	}
	b.Seqs, b.InvN = len(seqs), 1/float64(valid)
	return b, nil
}

// gradient evaluates the batch.
func gradient(cfg spec.Config, b model.Batch, weights map[string][]float32) (map[string]contract.Bounded, error) {
	be := bound.New()
	if cfg.Plan.CanonicalActivations() {
		be = bound.NewSums()
	}
	d, err := NewDense(be, cfg.Model, b.Seqs)
	if err != nil {
		return nil, err
	}
	defer d.Free()
	if err := d.SetWeights(weights); err != nil {
		return nil, err
	}
	if err := d.Evaluate(context.Background(), b); err != nil {
		return nil, err
	}
	answer := func(x kernels.Tensor) contract.Bounded {
		return contract.Bounded{Value: be.Exact(x), Bound: be.Bounds(x)}
	}
	out := map[string]contract.Bounded{trace.Loss: answer(d.Loss())}
	d.Params(func(p *model.Param) { out[p.Name] = answer(d.Gradient(p)) })
	return out, says(out)
}

// says refuses bounds that reach the largest element of the whole gradient:
// whatever a run computed would lie within them.
func says(g map[string]contract.Bounded) error {
	top, widest, name := 0.0, 0.0, ""
	for n, b := range g {
		if n == trace.Loss {
			continue
		}
		for i, v := range b.Value {
			top = max(top, math.Abs(v))
			if !(b.Bound[i] <= widest) {
				widest, name = b.Bound[i], n
			}
		}
	}
	if !(widest < top) {
		return fmt.Errorf("the bound of %s, %.3g, says nothing: no element of the gradient is larger than %.3g", name, widest, top)
	}
	return nil
}

// Update is the optimizer step that follows taken others, in canonical float32
// arithmetic: the norm over all parameters, the clipping, the update. With a
// norm that is not finite the state stays.
func (o *Oracle) Update(cfg spec.Config, taken int, before contract.State, grad map[string][]float32) (contract.State, error) {
	after, err := update(cfg, taken, before, grad)
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	return after, nil
}

func update(cfg spec.Config, taken int, before contract.State, grad map[string][]float32) (contract.State, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	opt, err := optim.New(cfg.Optimizer)
	if err != nil {
		return nil, err
	}
	be, layout := ref.New[float32](), model.NewLayout(cfg.Model, model.Whole(cfg.Model))
	owned := slices.DeleteFunc(layout.Params, func(p model.Param) bool { return p.Off >= layout.Owned })
	grads, squares := make([]kernels.Tensor, len(owned)), kernels.SquareSum{}
	for i, p := range owned {
		if grads[i], err = tensor(be, "gradient", p, grad); err != nil {
			return nil, err
		}
		be.SumSquares(&squares, grads[i])
	}
	norm := optim.Norm(&squares)
	skips := math.IsNaN(norm) || math.IsInf(norm, 0)
	step := optim.Step{T: taken, LR: cfg.Optimizer.At(taken), Coef: optim.ClipCoef(norm, cfg.Optimizer.Clip)}
	whats, after := append([]string{trace.Weight}, opt.Moments()...), contract.State{}
	for _, what := range whats {
		after[what] = map[string][]float32{}
	}
	for i, p := range owned {
		state := make([]kernels.Tensor, len(whats))
		for k, what := range whats {
			if state[k], err = tensor(be, what, p, before[what]); err != nil {
				return nil, err
			}
			after[what][p.Name] = ref.Data[float32](state[k])
		}
		if !skips {
			opt.Update(be, state[0], grads[i], state[1:], p.Decays, step)
		}
	}
	return after, nil
}

// tensor is a copy of a parameter's elements in the backend's memory.
func tensor(be kernels.Backend, what string, p model.Param, all map[string][]float32) (kernels.Tensor, error) {
	x := all[p.Name]
	if len(x) != p.Len() {
		return kernels.Tensor{}, fmt.Errorf("%s of %s: %d elements, want %d", what, p.Name, len(x), p.Len())
	}
	buf, err := be.Alloc(len(x))
	if err != nil {
		return kernels.Tensor{}, err
	}
	t := kernels.Flat(buf)
	be.Write(t, x)
	return t, nil
}
