package independent

import (
	"fmt"
	"math"
)

// Result is what an evaluation says about a step.
type Result struct {
	// Loss is the mean over the valid targets, one element.
	Loss Bounded
	// Gradients are those of the mean loss, before clipping, by parameter; a tied
	// head's is added to the embedding's.
	Gradients map[string]Bounded
	// Judged are the pinned tensors against their evaluation from what precedes
	// them, in the order in which they arise.
	Judged []Judged
}

// Evaluate runs a global batch forward and backward. It refuses a batch that does
// not fit the shape or has no valid target, and pins of another length; pins that
// name nothing are an error too.
func (m *Model) Evaluate(b Batch, pins Pins) (*Result, error) {
	if err := m.fits(b); err != nil {
		return nil, err
	}
	t := &trail{pins: pins}
	r := &Result{Gradients: map[string]Bounded{}}
	inputs, err := m.forward(b, t)
	if err != nil {
		return nil, err
	}
	x := inputs[m.shape.Layers]
	dx, err := m.head(b, x, t, r)
	if err != nil {
		return nil, err
	}
	for l := m.shape.Layers - 1; l >= 0; l-- {
		s := &stages{m: m, l: l, n: x.rows, trail: t}
		dx = s.backward(inputs[l], dx, r.Gradients)
		if s.err != nil {
			return nil, s.err
		}
	}
	m.embedGrad(b, dx, r.Gradients)
	r.Judged = t.judged
	if len(t.judged) != len(pins) {
		return nil, fmt.Errorf("independent model: %d of %d pins name a tensor of the model", len(t.judged), len(pins))
	}
	return r, nil
}

func (m *Model) fits(b Batch) error {
	n := b.Seqs * m.shape.SeqLen
	if b.Seqs < 1 || len(b.Tokens) != n || len(b.Targets) != n {
		return fmt.Errorf("independent model: %d tokens and %d targets of %d sequences: want %d each, at least one sequence",
			len(b.Tokens), len(b.Targets), b.Seqs, n)
	}
	for i, x := range b.Tokens {
		if x < 0 || int(x) >= m.shape.Vocab || int(b.Targets[i]) >= m.shape.Vocab {
			return fmt.Errorf("independent model: token %d, target %d at %d: must lie below the vocabulary size %d", x, b.Targets[i], i, m.shape.Vocab)
		}
	}
	if b.Valid() == 0 {
		return fmt.Errorf("independent model: no target is valid: there is no mean")
	}
	return nil
}

// forward gives the input of every block, and the final norm's.
func (m *Model) forward(b Batch, t *trail) ([]matrix, error) {
	h := m.shape.Hidden
	x := newMatrix(len(b.Tokens), h)
	for i, token := range b.Tokens {
		for j, w := range m.weights[embedName][int(token)*h : (int(token)+1)*h] {
			x.v[i*h+j] = float64(w)
		}
	}
	x.e = nil
	var inputs []matrix
	for l := range m.shape.Layers {
		s := &stages{m: m, l: l, n: x.rows, trail: t}
		in := s.pin("x", h, func() matrix { return x })
		inputs = append(inputs, in)
		x = s.forward(in)
		if s.err != nil {
			return nil, s.err
		}
	}
	x, err := t.pass("final/x", x.rows, h, func() matrix { return x })
	return append(inputs, x), err
}

// head computes the loss, and from it the gradient of the final norm's input:
// z = norm(x)*W'; the loss is the mean of log sum exp z - z_y over the valid
// targets; dz = (p - [v = y])/N, and 0 where the target is ignored.
func (m *Model) head(b Batch, x matrix, t *trail, r *Result) (matrix, error) {
	name := headName
	if m.shape.Tied {
		name = embedName
	}
	depth := m.depth(b.Seqs)
	norm := rmsNorm(x, m.weights[normName], m.shape.NormEps)
	h, v := x.cols, m.shape.Vocab
	var err error
	if norm.y, err = t.pass("final/n", x.rows, h, func() matrix { return norm.y }); err != nil {
		return x, err
	}
	z, err := t.pass("final/logits", x.rows, v, func() matrix { return m.linear(norm.y, name, "", h) })
	if err != nil {
		return z, err
	}
	dz, err := t.pass("final/dlogits", x.rows, v, func() matrix { return m.loss(b, z, depth, r) })
	if err != nil {
		return dz, err
	}
	r.Gradients[headName] = outer(dz, norm.y, depth)
	dn, err := t.pass("final/dnorm", x.rows, h, func() matrix { return m.back(m.grouped(v), branch{dz, name}) })
	if err != nil {
		return dn, err
	}
	dx, dw := rmsNormGrad(dn, x, norm.rstd, m.weights[normName], matrix{}, depth)
	r.Gradients[normName] = dw.bounded()
	return t.pass("final/dx", x.rows, h, func() matrix { return dx })
}

// loss gives the gradient of the logits.
func (m *Model) loss(b Batch, z matrix, depth int, r *Result) matrix {
	v := m.shape.Vocab
	dz := newMatrix(z.rows, v)
	nll := make([]value, z.rows)
	share := host(1 / float64(b.Valid()))
	parallel(z.rows, func(i int) {
		y := b.Targets[i]
		if y < 0 {
			return
		}
		scores, p := make([]value, v), make([]value, v)
		for j := range scores {
			scores[j] = z.at(i*v + j)
		}
		// The denominator is a tree over at most 2^8 groups of lanes.
		logSum, off := softmax(scores, p, lanes(v)+8)
		nll[i] = crossEntropy(scores, int(y), logSum, off)
		for j := range p {
			if j == int(y) {
				p[j] = p[j].sub(exact(1))
			}
			dz.set(i*v+j, p[j].mul(share))
		}
	})
	total, size := value{}, 0.0
	for _, x := range nll {
		total = total.plus(x)
		size += math.Abs(x.v) + x.e
	}
	total.e += gamma(depth) * size
	mean := total.mul(share)
	r.Loss = Bounded{[]float64{mean.v}, []float64{mean.e}}
	return dz
}

// crossEntropy is (m + log S) - z_y, where S, the sum of exp(z - m), may be wrong
// by a factor 1 +- off. S lies between 1 and V, whatever the largest logit m.
func crossEntropy(z []value, y int, logSum, off float64) value {
	l := value{logSum, math.Inf(1)}
	if off < 0.5 {
		l.e = off/(1-off) + ulps*(math.Log(float64(len(z)))+off)
	}
	return l.rounded().sub(z[y])
}

// embedGrad adds up the gradient of the embedding: that of each token's row, and
// the head's where it is tied.
func (m *Model) embedGrad(b Batch, dx matrix, grads map[string]Bounded) {
	h := m.shape.Hidden
	g := newMatrix(m.shape.Vocab, h)
	uses := make([]int, m.shape.Vocab)
	for _, token := range b.Tokens {
		uses[token]++
	}
	for i, token := range b.Tokens {
		k := gamma(uses[token] + log2(m.Workers))
		for j := range h {
			x := dx.at(i*h + j)
			at := int(token)*h + j
			g.v[at] += x.v
			g.e[at] += x.e + k*(math.Abs(x.v)+x.e)
		}
	}
	g.settle(len(b.Tokens))
	if m.shape.Tied {
		head := grads[headName]
		delete(grads, headName)
		g = sum(g, matrix{rows: g.rows, cols: g.cols, v: head.Value, e: head.Bound})
	}
	grads[embedName] = g.bounded()
}
