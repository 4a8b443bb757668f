package suite

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/num"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// believes makes the trainer take its configuration for another one, which the
// history's header does not show.
func believes(change func(c *spec.Config)) fault.Fault {
	return fault.OnConfig(func(_ int, c *spec.Config) { change(c) })
}

// filled fills the initial weights of parameters that where selects.
func filled(where func(name string) bool, value float32) fault.Fault {
	return fault.OnUpdater(fault.Every, func(be kernels.Backend, u parallel.Updater) parallel.Updater {
		return &filling{u, be, where, value}
	})
}

// filling is an updater whose initial weights are replaced.
type filling struct {
	parallel.Updater
	be    kernels.Backend
	where func(name string) bool
	value float32
}

func (f *filling) Init(ctx context.Context, fill func(p *model.Param, local shard.Range, dst kernels.Tensor)) error {
	return f.Updater.Init(ctx, func(p *model.Param, local shard.Range, dst kernels.Tensor) {
		fill(p, local, dst)
		if f.where(p.Name) {
			f.be.Fill(dst, float64(f.value))
		}
	})
}

// halving is an updater that gives the sum of a tied embedding half of the head's
// gradient.
type halving struct {
	parallel.Updater
	be kernels.Backend
}

func (h *halving) Tied(head bool) (grads, weights []kernels.Tensor) {
	grads, weights = h.Updater.Tied(head)
	if head {
		for _, g := range grads {
			h.be.Scale(g, g, 0.5)
		}
	}
	return grads, weights
}

// halfTied is halving.
func halfTied() fault.Fault {
	return fault.OnUpdater(fault.Every, func(be kernels.Backend, u parallel.Updater) parallel.Updater { return &halving{u, be} })
}

// scaled multiplies the attention's scale, in both passes.
func scaled(by func(dim int) float64) fault.Fault {
	return kernel(broken{heads: func(h *kernels.Heads) { h.Scale *= by(h.Dim) }})
}

// ofMicroBatch makes the loss a mean over the valid targets of each of n
// micro-batches, and those means' mean.
func ofMicroBatch(n int) func(targets []int32, share float64) float64 {
	return func(targets []int32, share float64) float64 {
		valid := 0
		for _, y := range targets {
			if y >= 0 {
				valid++
			}
		}
		if valid == 0 {
			return share
		}
		return 1 / float64(valid*n)
	}
}

// stopped rotates every position of a sequence from limit on by the angles of the one
// before limit. The tables hold a sequence's positions, and rows go through them again
// and again.
func stopped(limit int) func(be kernels.Backend, x, cos, sin kernels.Tensor, inverse bool) {
	return func(be kernels.Backend, x, cos, sin kernels.Tensor, inverse bool) {
		if t := cos.Rows; t > limit {
			for _, table := range []kernels.Tensor{cos, sin} {
				for i := limit; i < t; i++ {
					be.Copy(table.RowRange(i, i+1), table.RowRange(limit-1, limit))
				}
			}
		}
		be.Rope(x, cos, sin, inverse)
	}
}

// noSlope leaves z*(1-sigmoid(z)) out of the derivative of the gate.
func noSlope(be kernels.Backend, dz, du, dh, z, u kernels.Tensor) {
	gate, up, d := read(be, z), read(be, u), read(be, dh)
	be.SwiGLUGrad(dz, du, dh, z, u)
	for i, x := range gate {
		d[i] *= float32(float64(up[i]) / (1 + num.Exp(-float64(x))))
	}
	be.Write(dz, d)
}

// decayedGradient adds the decay to the gradient, where it enters the moments.
func decayedGradient(be kernels.Backend, w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	grads := read(be, g)
	for i, x := range read(be, w) {
		grads[i] += float32(p.Decay / p.Coef * float64(x))
	}
	be.Write(g, grads)
	p.Decay = 0
	be.AdamW(w, m, v, g, p)
}

// lookAhead attends one position further than the mask allows: to the next token,
// of whose score nothing was known.
func lookAhead(be kernels.Backend, o, _, q, k, v kernels.Tensor, h kernels.Heads) {
	out, qs, ks, vs := read(be, o), read(be, q), read(be, k), read(be, v)
	d := h.Dim
	for s := range h.Seqs {
		for head := range h.Heads {
			kv := head / (h.Heads / h.KVHeads)
			for t := range h.T {
				row := (s*h.T+t)*h.Heads*d + head*d
				attend(out[row:row+d], qs[row:row+d], func(i int) (key, value []float32) {
					at := (s*h.T+i)*h.KVHeads*d + kv*d
					return ks[at : at+d], vs[at : at+d]
				}, min(t+2, h.T), h.Scale)
			}
		}
	}
	be.Write(o, out)
}

// attend is the attention of a query over the first n keys.
func attend(out, q []float32, at func(i int) (key, value []float32), n int, scale float64) {
	scores, sum := make([]float64, n), 0.0
	for i := range scores {
		key, _ := at(i)
		dot := 0.0
		for j, x := range q {
			dot += float64(float64(x) * float64(key[j]))
		}
		scores[i] = num.Exp(float64(dot * scale))
		sum += scores[i]
	}
	for j := range out {
		x := 0.0
		for i, e := range scores {
			_, value := at(i)
			x += float64(e / sum * float64(value[j]))
		}
		out[j] = float32(x)
	}
}

// read copies a tensor's elements; a failed read is a fault that shows by itself.
func read(be kernels.Backend, x kernels.Tensor) []float32 {
	out := make([]float32, x.Len())
	_ = be.Read(out, x)
	return out
}
