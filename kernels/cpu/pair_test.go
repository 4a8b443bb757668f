package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// pair runs the same calls on a backend and on package ref.
type pair struct {
	t   *testing.T
	b   *Backend
	ref *ref.Backend[float32]
	r   *rand.Rand
}

// both are tensors of equal content.
type both struct{ fast, slow kernels.Tensor }

func (p *pair) tensor(rows, cols, gap int) both {
	p.t.Helper()
	n := max(rows*(cols+gap), 1)
	var out both
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(p.r.NormFloat64())
		if p.r.IntN(50) == 0 {
			x[i] = math.Float32frombits(uint32(p.r.Uint64()) & 0x807fffff) // subnormal, or a zero
		}
	}
	for i, to := range []*kernels.Tensor{&out.fast, &out.slow} {
		k := []kernels.Backend{p.b, p.ref}[i]
		buf, err := k.Alloc(n)
		if err != nil {
			p.t.Fatal(err)
		}
		k.Write(kernels.Flat(buf), x)
		*to = kernels.Tensor{Buf: buf, Rows: rows, Cols: cols, Stride: cols + gap}
	}
	return out
}

// equal demands equal bits in the whole buffers.
func (p *pair) equal(name string, x both) {
	p.t.Helper()
	a, b := ref.Data[float32](kernels.Flat(x.fast.Buf)), ref.Data[float32](kernels.Flat(x.slow.Buf))
	for i := range a {
		if kernels.Bits(a[i]) != kernels.Bits(b[i]) {
			p.t.Fatalf("%s: element %d is %g (%#x), want %g (%#x)", name, i, a[i], kernels.Bits(a[i]), b[i], kernels.Bits(b[i]))
		}
	}
}

// product compares one matrix product.
func (p *pair) product(l layout, m, n, k, groups int) {
	p.t.Helper()
	far := 512 * p.r.IntN(2) // rows of B so far apart that every ISA packs it, or not
	g := func() int { return far + p.r.IntN(3) }
	c := p.tensor(m, n, g())
	name := fmt.Sprintf("m%d n%d k%d groups %d", m, n, k, groups)
	bounds := shard.Bounds(k, groups)
	switch l {
	case nt:
		a, b := p.tensor(m, k, g()), p.tensor(n, k, g())
		p.b.MatMulNT(c.fast, a.fast, b.fast, bounds)
		p.ref.MatMulNT(c.slow, a.slow, b.slow, bounds)
		name = "NT " + name
	case nn:
		var fast, slow []kernels.Term
		for range 1 + p.r.IntN(3) {
			a, b := p.tensor(m, k, g()), p.tensor(k, n, g())
			fast = append(fast, kernels.Term{A: a.fast, B: b.fast, Groups: bounds})
			slow = append(slow, kernels.Term{A: a.slow, B: b.slow, Groups: bounds})
		}
		p.b.MatMulNN(c.fast, fast)
		p.ref.MatMulNN(c.slow, slow)
		name = "NN " + name
	case tn:
		a, b := p.tensor(k, m, g()), p.tensor(k, n, g())
		p.b.MatMulTN(c.fast, a.fast, b.fast)
		p.ref.MatMulTN(c.slow, a.slow, b.slow)
		name = "TN " + name
	}
	p.equal(name, c)
}

// attention compares both directions for one set of heads.
func (p *pair) attention(h kernels.Heads) {
	p.t.Helper()
	rows, q, kv := h.Seqs*h.T, h.Heads*h.Dim, h.KVHeads*h.Dim
	o, dq, dk, dv := p.tensor(rows, q, 0), p.tensor(rows, q, 0), p.tensor(rows, kv, 0), p.tensor(rows, kv, 0)
	prob, x, do := p.tensor(rows*h.Heads, h.T, 0), p.tensor(rows, q, 0), p.tensor(rows, q, 0)
	k, v := p.tensor(rows, kv, 0), p.tensor(rows, kv, 0)
	p.b.Attention(o.fast, prob.fast, x.fast, k.fast, v.fast, h)
	p.ref.Attention(o.slow, prob.slow, x.slow, k.slow, v.slow, h)
	p.b.AttentionGrad(dq.fast, dk.fast, dv.fast, do.fast, prob.fast, x.fast, k.fast, v.fast, h)
	p.ref.AttentionGrad(dq.slow, dk.slow, dv.slow, do.slow, prob.slow, x.slow, k.slow, v.slow, h)
	for i, x := range []both{o, prob, dq, dk, dv} {
		p.equal(fmt.Sprintf("%+v, %s", h, []string{"o", "p", "dq", "dk", "dv"}[i]), x)
	}
}
