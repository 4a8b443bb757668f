package suite

import (
	"context"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/formulas"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// recorder keeps what the model of the only rank computes with in some steps, as taps
// with their elements. It stands outside of all other decorators, where the model
// is: what a fault makes of a result is what it records.
type recorder struct {
	only   []int // the steps that are recorded
	layers int

	step   int
	micro  *parallel.MicroBatch
	unit   int // of the layout: embedding, blocks, final norm, tied head
	calls  map[string]int
	events []trace.Event
	err    error // the first failed read
}

// attach decorates the parts of a run.
func (r *recorder) attach(p *launch.Parts) {
	fault.OnBackend(0, func(be kernels.Backend) kernels.Backend { return &taping{be, r} })(p)
	fault.OnUpdater(0, func(_ kernels.Backend, u parallel.Updater) parallel.Updater { return &following{u, r} })(p)
}

// into adds what was recorded to a history, before its end.
func (r *recorder) into(h *trace.History) {
	all := h.Ranks[0]
	end := len(all)
	if end > 0 && all[end-1].Kind == trace.KindEnd {
		end--
	}
	out := append(append(append([]trace.Event{}, all[:end]...), r.events...), all[end:]...)
	h.Ranks[0] = out
}

// following tells the recorder where the model is.
type following struct {
	parallel.Updater
	*recorder
}

func (f *following) Begin(step int) {
	f.step = step
	f.Updater.Begin(step)
}

func (f *following) Enter(mb *parallel.MicroBatch) {
	f.micro = mb
	f.Updater.Enter(mb)
}

func (f *following) Before(ctx context.Context, unit int, ph model.Phase) error {
	f.unit, f.calls = unit, map[string]int{}
	if unit == 0 && ph == model.Forward && f.micro != nil {
		f.integers(formulas.EmbedUnit, formulas.Tokens, f.micro.Batch.Tokens)
		f.integers(formulas.FinalUnit, formulas.Targets, f.micro.Batch.Targets)
	}
	return f.Updater.Before(ctx, unit, ph)
}

// name is the unit's name in taps.
func (r *recorder) name() string {
	switch {
	case r.unit == 0:
		return formulas.EmbedUnit
	case r.unit <= r.layers:
		return formulas.Block(r.unit - 1)
	}
	return formulas.FinalUnit
}

// inBlock says whether the model is in a block.
func (r *recorder) inBlock() bool { return r.unit > 0 && r.unit <= r.layers }

// next picks the name of a kernel's n-th call in a unit.
func (r *recorder) next(kernel string, names ...string) string {
	n := r.calls[kernel]
	r.calls[kernel]++
	return names[n%len(names)]
}

// integers keeps tokens or targets, which float32 holds exactly below 2^24.
func (r *recorder) integers(unit, name string, x []int32) {
	data := make(trace.Floats, len(x))
	for i, v := range x {
		data[i] = float32(v)
	}
	r.add(trace.Forward, unit, name, data, 1)
}

// add records a tap of the given number of columns.
func (r *recorder) add(what, unit, name string, data trace.Floats, columns int) {
	if !slices.Contains(r.only, r.step) || len(data) == 0 || r.micro == nil {
		return
	}
	d := kernels.Digest{}
	id := kernels.TensorID(name)
	for i, x := range data {
		a, b := kernels.Mix(id, uint64(i), uint64(kernels.Bits(x)))
		d.A, d.B = d.A+a, d.B+b
		if x-x != 0 {
			d.NonFinite++
		}
	}
	r.events = append(r.events, trace.Event{Kind: trace.KindTap, Step: r.step, What: what, Unit: unit, Tensor: name, Micro: r.micro.Micro,
		Hi: int64(columns), Count: int64(columns), Digest: &d, Data: data})
}

// taping is a backend whose operands and results are recorded.
type taping struct {
	kernels.Backend
	*recorder
}

func (t *taping) keep(what, name string, x kernels.Tensor) {
	if !slices.Contains(t.only, t.step) || x.Len() == 0 {
		return
	}
	data := make(trace.Floats, x.Len())
	if err := t.Read(data, x); err != nil {
		if t.err == nil {
			t.err = err
		}
		return
	}
	t.add(what, t.name(), name, data, x.Cols)
}

func (t *taping) forward(name string, x kernels.Tensor)  { t.keep(trace.Forward, name, x) }
func (t *taping) backward(name string, x kernels.Tensor) { t.keep(trace.Backward, name, x) }

func (t *taping) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	in, out := "x", "n"
	if t.inBlock() {
		in = t.next("norm", "x", "mid")
		out = t.next("normed", "n1", "n2")
	}
	t.forward(in, x)
	t.Backend.RMSNorm(y, rstd, x, w, eps)
	t.forward(out, y)
}

func (t *taping) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	if !inverse {
		t.forward(t.next("rope", "q", "k"), x)
	}
	t.Backend.Rope(x, cos, sin, inverse)
	if inverse {
		t.backward(t.next("rope", "dq", "dk"), x)
	}
}

func (t *taping) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	t.Backend.Attention(o, p, q, k, v, h)
	t.forward("v", v)
	t.forward("attention", o)
}

func (t *taping) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	t.backward("dattention", do)
	t.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	t.backward("dv", dv)
}

func (t *taping) SwiGLU(h, z, u kernels.Tensor) {
	t.forward("gate", z)
	t.forward("up", u)
	t.Backend.SwiGLU(h, z, u)
}

func (t *taping) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	t.Backend.SwiGLUGrad(dz, du, dh, z, u)
	t.backward("dgate", dz)
	t.backward("dup", du)
}

func (t *taping) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	branch, result := "dnorm", "dx"
	if t.inBlock() {
		branch = t.next("branch", "dmlp", "dattn")
		result = t.next("result", "dmid", "dx")
	}
	t.backward(branch, dy)
	t.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	t.backward(result, dx)
}

func (t *taping) LogitsMax(top, target, z kernels.Tensor, targets []int32, first int) {
	t.forward("logits", z)
	t.Backend.LogitsMax(top, target, z, targets, first)
}

func (t *taping) CrossEntropy(nll, z, sum, top, target kernels.Tensor, targets []int32, first int, invN float64) {
	t.Backend.CrossEntropy(nll, z, sum, top, target, targets, first, invN)
	t.backward("dlogits", z)
}
