package independent_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// tape is a backend that keeps what the model's intermediate tensors hold, by the
// names of independent.Pins, one after another.
type tape struct {
	kernels.Backend
	layers       int
	norms, grads int // calls of RMSNorm and RMSNormGrad
	kept         map[string][]float32
	ropes        int
}

func (r *tape) keep(name string, x kernels.Tensor) {
	f := make([]float32, x.Len())
	if err := r.Read(f, x); err != nil {
		panic(err)
	}
	r.kept[name] = append(r.kept[name], f...)
}

// block is the name of a block's tensor in a forward pass, or a backward one.
func (r *tape) block(what string) string { return fmt.Sprintf("block.%d/%s", r.layer(), what) }
func (r *tape) back(what string) string {
	return fmt.Sprintf("block.%d/%s", r.layers-1-(r.grads%(2*r.layers+1)-1)/2, what)
}
func (r *tape) layer() int { return (r.norms%(2*r.layers+1) - 1) / 2 }

func (r *tape) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	i := r.norms % (2*r.layers + 1)
	name := "final/x"
	if i < 2*r.layers {
		name = fmt.Sprintf("block.%d/%s", i/2, []string{"x", "mid"}[i%2])
	}
	r.keep(name, x)
	r.norms++
	r.ropes = 0
	r.Backend.RMSNorm(y, rstd, x, w, eps)
	result := "final/n"
	if i < 2*r.layers {
		result = fmt.Sprintf("block.%d/n%d", i/2, 1+i%2)
	}
	r.keep(result, y)
}

func (r *tape) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	name := []string{"q", "k"}[r.ropes%2]
	r.ropes++
	if !inverse {
		r.keep(r.block(name), x)
	}
	r.Backend.Rope(x, cos, sin, inverse)
	if inverse {
		r.keep(r.back("d"+name), x)
	}
}

func (r *tape) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	r.Backend.Attention(o, p, q, k, v, h)
	r.keep(r.block("v"), v)
	r.keep(r.block("attention"), o)
}

func (r *tape) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	r.keep(r.back("dattention"), do)
	r.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	r.keep(r.back("dv"), dv)
	r.ropes = 0
}

func (r *tape) SwiGLU(h, z, u kernels.Tensor) {
	r.keep(fmt.Sprintf("block.%d/gate", r.norms%(2*r.layers+1)/2-1), z)
	r.keep(fmt.Sprintf("block.%d/up", r.norms%(2*r.layers+1)/2-1), u)
	r.Backend.SwiGLU(h, z, u)
}

func (r *tape) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	r.Backend.SwiGLUGrad(dz, du, dh, z, u)
	r.keep(r.back("dgate"), dz)
	r.keep(r.back("dup"), du)
}

func (r *tape) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	i := r.grads % (2*r.layers + 1)
	name, branch := "final/dx", "final/dnorm"
	if i > 0 {
		block := fmt.Sprintf("block.%d/", r.layers-1-(i-1)/2)
		name, branch = block+[]string{"dmid", "dx"}[(i-1)%2], block+[]string{"dmlp", "dattn"}[(i-1)%2]
	}
	r.keep(branch, dy)
	r.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	r.keep(name, dx)
	r.grads++
}

func (r *tape) LogitsMax(top, target, z kernels.Tensor, targets []int32, first int) {
	r.keep("final/logits", z)
	r.Backend.LogitsMax(top, target, z, targets, first)
}

func (r *tape) CrossEntropy(nll, z, sum, top, target kernels.Tensor, targets []int32, first int, invN float64) {
	r.Backend.CrossEntropy(nll, z, sum, top, target, targets, first, invN)
	r.keep("final/dlogits", z)
}

// recording is a run with what it recorded.
type recording struct {
	cfg  spec.Config
	h    *trace.History
	tape *tape // of one rank, all steps one after another
	seen map[string]map[string][]float32
}

// preset is a configuration of one rank that records all its numbers.
func preset(t testing.TB, name string, change func(*spec.Config)) spec.Config {
	t.Helper()
	c, err := spec.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	c.Steps = 1
	c.Recording = spec.Recording{Digests: true, Capture: true}
	if change != nil {
		change(&c)
	}
	return c
}

func record(t testing.TB, c spec.Config) *recording {
	t.Helper()
	r := &recording{cfg: c}
	backend := func(int) (kernels.Backend, error) {
		be, err := cpu.New(cpu.Options{})
		if err != nil || c.Plan.World() > 1 {
			return be, err
		}
		r.tape = &tape{Backend: be, layers: c.Model.Layers, kept: map[string][]float32{}}
		return r.tape, nil
	}
	out, err := launch.Local(context.Background(), c, data.Default(), launch.Parts{Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	r.h = out.History
	if r.cfg, err = spec.Of(out.History.Header.Spec); err != nil {
		t.Fatal(err)
	}
	return r
}

func withPlan(t testing.TB, c *spec.Config, s string) {
	t.Helper()
	p, err := plan.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	c.Plan = p
}

// captured are the elements of one kind after a step, put together from all ranks:
// each logical element is recorded once. They are shared: callers change nothing.
func (r *recording) captured(t testing.TB, step int, what string) map[string][]float32 {
	t.Helper()
	key := fmt.Sprint(step, " ", what)
	if r.seen[key] != nil {
		return r.seen[key]
	}
	layouts := map[string]*model.Layout{}
	out := map[string][]float32{}
	for e := range r.h.All {
		if e.Kind != trace.KindDigest || e.Step != step || e.What != what || !e.Once {
			continue
		}
		l := r.layout(layouts, e.Rank, e.Tensor)
		p := &l.Params[slices.IndexFunc(l.Params, func(p model.Param) bool { return p.Name == e.Tensor })]
		if out[e.Tensor] == nil {
			x := make([]float32, p.Rows*p.Cols)
			for i := range x {
				x[i] = float32(math.NaN())
			}
			out[e.Tensor] = x
		}
		for i, v := range e.Data {
			local := int(e.Lo) + i - p.Off
			out[e.Tensor][(p.R.Lo+local/p.C.Len())*p.Cols+p.C.Lo+local%p.C.Len()] = v
		}
	}
	if len(out) == 0 {
		t.Fatalf("no elements of %s at step %d", what, step)
	}
	if r.seen == nil {
		r.seen = map[string]map[string][]float32{}
	}
	r.seen[key] = out
	return out
}

// layout is that of the part of a rank that has a parameter.
func (r *recording) layout(known map[string]*model.Layout, rank int, tensor string) *model.Layout {
	key := fmt.Sprint(rank, " ", tensor)
	if known[key] != nil {
		return known[key]
	}
	for _, part := range r.cfg.Plan.Parts(r.cfg.Model, r.cfg.Plan.Dims().Coord(rank)) {
		l := model.NewLayout(r.cfg.Model, part)
		if slices.ContainsFunc(l.Params, func(p model.Param) bool { return p.Name == tensor }) {
			known[key] = &l
		}
	}
	return known[key]
}

func (r *recording) scalar(t testing.TB, step int, what string) float64 {
	t.Helper()
	for e := range r.h.All {
		if e.Kind == trace.KindScalar && e.Step == step && e.What == what && e.Once {
			return float64(e.Value)
		}
	}
	t.Fatalf("no %s at step %d", what, step)
	return 0
}

// corpus is the run's data by the second pipeline.
func (r *recording) corpus(t testing.TB) *independent.Corpus {
	t.Helper()
	c := &independent.Corpus{SeqLen: r.cfg.Model.SeqLen, PerStep: r.cfg.Sequences, Pad: r.cfg.LastStep == data.Pad, Blank: r.cfg.Blank}
	if err := c.Read(data.Default().Bytes, r.cfg.Model.Vocab); err != nil {
		t.Fatal(err)
	}
	return c
}

// batch is the global batch of a step by the second pipeline.
func (r *recording) batch(t testing.TB, step int) independent.Batch {
	t.Helper()
	b := independent.Batch{Seqs: r.cfg.Sequences}
	for _, q := range r.corpus(t).Step(step) {
		b.Tokens, b.Targets = append(b.Tokens, q.Tokens...), append(b.Targets, q.Targets...)
	}
	return b
}

// pins are the recorded tensors of a step that choose picks, rows by position.
func (r *recording) pins(t testing.TB, step int, choose func(name string) bool) independent.Pins {
	t.Helper()
	d, n := r.cfg.Plan.Workers(r.cfg.Model), r.cfg.Sequences
	out := independent.Pins{}
	for name, all := range r.tape.kept {
		if !choose(name) {
			continue
		}
		size := len(all) / r.cfg.Steps // of a step
		row := size / n
		from := all[step*size : (step+1)*size]
		x := make([]float32, size)
		for w := range d {
			for _, position := range independent.Dealt(n, w, d) {
				copy(x[position*row:(position+1)*row], from[:row])
				from = from[row:]
			}
		}
		out[name] = x
	}
	return out
}

// Sets of pins: none, the residual stream at blocks, at half blocks, everything.
func none(string) bool { return false }
func blocks(name string) bool {
	return slices.Contains([]string{"x", "dx"}, name[len(name)-min(len(name), after(name)):])
}
func halves(name string) bool {
	return blocks(name) || slices.Contains([]string{"mid", "dmid"}, name[len(name)-after(name):])
}
func everything(string) bool { return true }

// after is the length of what follows the slash.
func after(name string) int {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return len(name) - 1 - i
		}
	}
	return len(name)
}
