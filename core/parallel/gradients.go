package parallel

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Gradients accumulates the gradients of a rank's logical workers as the
// canonical tree over consecutive workers, with a binary counter: after worker
// i, the buffer of level l holds the tree over 2^l workers where bit l of i+1
// is set. So n workers (a power of two) need log2(n)+1 buffers.
//
// The flat buffers follow the layout's gradients; a one-element buffer each
// goes along for the loss.
type Gradients struct {
	be      kernels.Backend
	layout  *model.Layout
	n       int // workers of this rank
	flat    []kernels.Tensor
	loss    []kernels.Tensor
	present []bool // [0] of the accumulator, [1+l] of level l
}

// NewGradients allocates the buffers for n workers, a power of two.
func NewGradients(be kernels.Backend, l *model.Layout, n int) (*Gradients, error) {
	if !shard.IsPowerOfTwo(n) {
		return nil, fmt.Errorf("%d logical workers on one rank: must be a power of two", n)
	}
	g := &Gradients{be: be, layout: l, n: n}
	for range bits.Len(uint(n)) {
		flat, err := be.Alloc(l.Grads)
		if err != nil {
			return nil, fmt.Errorf("gradients: %w", err)
		}
		loss, err := be.Alloc(1)
		if err != nil {
			return nil, fmt.Errorf("loss: %w", err)
		}
		g.flat, g.loss = append(g.flat, kernels.Flat(flat)), append(g.loss, kernels.Flat(loss))
	}
	g.present = make([]bool, len(g.flat))
	return g, nil
}

// Flat is the accumulator: the current worker's gradient, and after the last
// worker the rank's partial sum.
func (g *Gradients) Flat() kernels.Tensor { return g.flat[0] }

// Buffers lists the accumulator and the levels.
func (g *Gradients) Buffers() []kernels.Tensor { return g.flat }

// Loss is the accumulator of the summed loss.
func (g *Gradients) Loss() kernels.Tensor { return g.loss[0] }

// Start clears the accumulator for a worker and binds m to it. A worker without
// sequences is absent: it leaves no leaf in the tree.
func (g *Gradients) Start(m *model.Model, weights func(u int) kernels.Tensor, present bool) {
	g.be.Fill(g.flat[0], 0)
	g.be.Fill(g.loss[0], 0)
	g.present[0] = present
	for u := range g.layout.Units {
		m.Bind(u, weights(u), g.Unit(u))
	}
	m.BindLoss(g.loss[0])
}

// Unit is the accumulator's part for unit u.
func (g *Gradients) Unit(u int) kernels.Tensor {
	r := g.layout.Units[u].Range
	return g.flat[0].Range(r.Lo, r.Hi)
}

// Fold adds what earlier workers left to the accumulator's part for unit u,
// once worker i's gradient of the unit is complete. After the last worker an
// absent result is -0 in every element, the identity of +.
func (g *Gradients) Fold(u, i int) {
	r := g.layout.Units[u].Range
	g.carry(i, func(level int) (acc, earlier kernels.Tensor) {
		return g.flat[0].Range(r.Lo, r.Hi), g.flat[level].Range(r.Lo, r.Hi)
	})
}

// End closes worker i after all its units are folded: the accumulator becomes
// the level that waits for the next worker, or stays where it was the last.
func (g *Gradients) End(i int) {
	g.carry(i, func(level int) (acc, earlier kernels.Tensor) { return g.loss[0], g.loss[level] })
	level := 1
	for ; i>>(level-1)&1 == 1; level++ {
		g.present[0] = g.present[0] || g.present[level]
	}
	if i == g.n-1 {
		return
	}
	g.flat[0], g.flat[level] = g.flat[level], g.flat[0]
	g.loss[0], g.loss[level] = g.loss[level], g.loss[0]
	g.present[0], g.present[level] = g.present[level], g.present[0]
}

// carry sums the levels that worker i completes: earlier + later.
func (g *Gradients) carry(i int, at func(level int) (acc, earlier kernels.Tensor)) {
	present := g.present[0]
	acc, _ := at(0)
	for level := 1; i>>(level-1)&1 == 1; level++ {
		_, earlier := at(level)
		switch {
		case !g.present[level]:
		case present:
			g.be.Add(acc, earlier, acc)
		default:
			g.be.Copy(acc, earlier)
			present = true
		}
	}
	if i == g.n-1 && !present {
		g.be.Fill(acc, math.Copysign(0, -1))
	}
}
