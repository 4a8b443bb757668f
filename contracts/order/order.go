// Package order is the oracle for plans that differ from the single worker in
// nothing but the order of sums: another number of workers, a ring, a
// coordinator. It gives the exact gradient of a step at given weights with the
// bound that every order of summation satisfies.
//
// Given the weights, the activations and their gradients have the same bits on
// all such plans, since a token's share in them does not depend on where other
// tokens are. Only the sums over tokens and workers run in another order. So the
// oracle runs the model in canonical float32 and takes those sums itself: the
// products are exact in float64, and beside each sum goes that of the
// magnitudes. A float32 sum whose terms pass through at most n roundings errs by
// at most gamma_n = n*u/(1-n*u) times the sum of magnitudes, u = 2^-24, in any
// order (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1
// and 4.2), plus what n underflows lose.
//
// The bound is tight, some ulps of the sum of magnitudes: a lost sequence or a
// wrong bit stands out. It does not hold for backends with other arithmetic;
// package kernels/bound follows the error through the whole model.
package order

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/bound"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Oracle is contract.Oracle. It is safe for concurrent use if its text function
// is.
type Oracle struct {
	*bound.Oracle // the optimizer's update
	text          func(name string) (train.Text, error)
}

var _ contract.Oracle = (*Oracle)(nil)

// NewOracle makes an oracle that finds the training text of a spec by its name.
func NewOracle(text func(name string) (train.Text, error)) *Oracle {
	return &Oracle{bound.NewOracle(text), text}
}

// Gradient is the gradient of the mean loss of the step's global batch at the
// weights, before clipping, by parameter, and the loss under trace.Loss. It
// refuses a spec that does not parse, a text whose hash is not the spec's, a
// step without valid tokens, and weights that do not fit the model.
func (o *Oracle) Gradient(spec []byte, step int, weights map[string][]float32) (map[string]contract.Bounded, error) {
	cfg, err := train.ParseSpec(json.RawMessage(spec))
	if err != nil {
		return nil, err
	}
	batch, valid, err := o.batch(cfg, step)
	if err != nil {
		return nil, err
	}
	s := &sums{Backend: ref.New[float32]()}
	d, err := bound.NewDense(s, cfg.Model, 1)
	if err != nil {
		return nil, err
	}
	defer d.Free()
	if err := d.SetWeights(weights); err != nil {
		return nil, err
	}
	l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
	s.grads, s.loss = d.Gradient(&l.Params[0]).Buf, d.Loss().Buf
	s.value, s.magnitude = make([]float64, l.Grads), make([]float64, l.Grads)
	invN := 1 / float64(valid)
	for _, q := range batch {
		if err := d.Evaluate(context.Background(), model.Batch{Tokens: q.Tokens, Targets: q.Targets, Seqs: 1, InvN: invN}); err != nil {
			return nil, err
		}
	}
	return s.result(cfg, l, invN), s.err
}

// batch is the step's global batch and the number of its valid tokens.
func (o *Oracle) batch(cfg train.Config, step int) (batch []data.Sequence, valid int, err error) {
	text, err := o.text(cfg.Text)
	if err != nil {
		return nil, 0, err
	}
	if h := text.Hash(); h != cfg.TextHash {
		return nil, 0, fmt.Errorf("text %s has hash %s; the run was made on %s", text.Name, h, cfg.TextHash)
	}
	set, err := cfg.Set(text)
	if err != nil {
		return nil, 0, err
	}
	batch = set.Step(step)
	for _, q := range batch {
		valid += int(q.Valid)
	}
	if valid == 0 {
		return nil, 0, train.ErrNoTokens
	}
	return batch, valid, nil
}

// result adds the sources of each parameter and derives the bounds. A term
// passes through at most one addition per token, worker, rank and source.
func (s *sums) result(cfg train.Config, l model.Layout, invN float64) map[string]contract.Bounded {
	n := cfg.Sequences*cfg.Model.SeqLen + cfg.Plan.Workers(cfg.Model) + cfg.Plan.World() + 2
	out := map[string]contract.Bounded{}
	for i := range l.Params {
		p := &l.Params[i]
		name := p.Name
		if p.Off >= l.Owned {
			name = model.EmbedName // a tied head is a second source of it
		}
		b, ok := out[name]
		if !ok {
			b = contract.Bounded{Value: make([]float64, p.Len()), Bound: make([]float64, p.Len())}
			out[name] = b
		}
		for j := range b.Value {
			b.Value[j] += s.value[p.Off+j]
			b.Bound[j] += gamma(n, s.magnitude[p.Off+j])
		}
	}
	loss := float64(s.total * invN)
	// Every token's loss is positive; the mean rounds twice more.
	out[trace.Loss] = contract.Bounded{Value: []float64{loss}, Bound: []float64{gamma(n+2, loss)}}
	return out
}

// gamma is the bound of n roundings on the way of terms whose magnitudes add up
// to m, with the error of the float64 sum itself, and what underflow loses.
func gamma(n int, m float64) float64 {
	g := func(u float64) float64 {
		nu := float64(float64(n) * u)
		return nu / (1 - nu)
	}
	return float64((g(0x1p-24)+g(0x1p-53))*m) + float64(float64(n)*0x1p-149)
}
