package independent

import (
	"fmt"
	"math"
)

// Pins are recorded tensors by name, row by row, one row per token: forward the
// input of a block ("block.3/x"), the results of its norms ("n1", "n2"), its
// projections with their biases before the rotation ("q", "k", "v"), the
// attention's result before the output projection ("attention"), the residual
// stream between the two halves ("mid"), "gate" and "up"; then the input and the
// result of the final norm ("final/x", "final/n") and the "logits". The gradient
// of each but the norms is named with a d: "block.3/dx", "final/dlogits"; those
// of q and k are taken after the rotation backward. "dattn" and "dmlp" are the
// gradients that the two branches of a block give n1 and n2, "final/dnorm" is
// that which the head gives n.
type Pins map[string][]float32

// Batch is the global batch of a step: Seqs sequences of the shape's SeqLen
// tokens, by position; negative targets are ignored.
type Batch struct {
	Tokens, Targets []int32
	Seqs            int
}

// Valid counts the targets that are not ignored.
func (b *Batch) Valid() int {
	n := 0
	for _, y := range b.Targets {
		if y >= 0 {
			n++
		}
	}
	return n
}

// Model is a decoder at given weights.
type Model struct {
	// Workers is the number of logical workers over whose gradients the sums over
	// tokens are trees, worker w with the sequences w, w+Workers, ...; 0 bounds
	// them for any order.
	Workers int
	// Groups is the number of groups that heads, intermediate size and vocabulary
	// are cut into where a sum over them is a tree over groups of a chain each; 0
	// bounds those sums for any order.
	Groups int

	shape   Shape
	weights map[string][]float32 // of the shape's parameters alone
	rope    *rotation
}

// New makes the model of a shape at weights by Hugging Face name, row by row. It
// refuses a set that lacks a parameter or has one of another length.
func New(s Shape, weights map[string][]float32) (*Model, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	m := &Model{shape: s, weights: map[string][]float32{}, rope: newRotation(s.SeqLen, s.HeadDim, s.RopeTheta)}
	for _, p := range s.Params() {
		if n := len(weights[p.Name]); n != p.Len() {
			return nil, fmt.Errorf("independent model: weights of %s: %d elements, want %d", p.Name, n, p.Len())
		}
		m.weights[p.Name] = weights[p.Name]
	}
	return m, nil
}

// depth is how many roundings a token's addend of a gradient passes.
func (m *Model) depth(seqs int) int {
	if m.Workers < 1 {
		return seqs * m.shape.SeqLen
	}
	return (seqs+m.Workers-1)/m.Workers*m.shape.SeqLen + log2(m.Workers)
}

// grouped is how many roundings an addend passes of a sum over the given widths,
// each cut into groups: a chain through a group of each, then the tree. A group
// has at most a head's keys and values where there are more groups than heads.
func (m *Model) grouped(widths ...int) int {
	chain, all := log2(m.Groups), 0
	for _, w := range widths {
		all += w
		if w == m.shape.KVHeads*m.shape.HeadDim && m.Groups > m.shape.KVHeads {
			chain += m.shape.HeadDim
		} else {
			chain += (w + max(m.Groups, 1) - 1) / max(m.Groups, 1)
		}
	}
	if m.Groups < 1 {
		return all
	}
	return min(chain, all)
}

// matrix is a weight matrix.
func (m *Model) matrix(name string, cols int) matrix {
	w := m.weights[name]
	return given(len(w)/cols, cols, w)
}

// linear is x*W' + b, the bias where there is one; depth is how many roundings an
// addend passes.
func (m *Model) linear(x matrix, weight, bias string, depth int) matrix {
	w := m.matrix(weight, x.cols)
	y := newMatrix(x.rows, w.rows)
	y.product(x, w.t(), depth)
	y.settle(depth)
	if b, ok := m.weights[bias]; ok {
		for i := range y.v {
			y.set(i, y.at(i).add(exact(float64(b[i%y.cols]))))
		}
	}
	return y
}

// branch is the gradient of a linear layer's input from that of its output.
type branch struct {
	dy     matrix
	weight string
}

// back is the sum of dy*W over the branches, of n roundings.
func (m *Model) back(n int, branches ...branch) matrix {
	cols := len(m.weights[branches[0].weight]) / branches[0].dy.cols
	dx := newMatrix(branches[0].dy.rows, cols)
	for _, b := range branches {
		dx.product(b.dy, m.matrix(b.weight, cols), n)
	}
	return dx.settle(n)
}

// outer is the gradient of a weight: the sum over tokens of dy'*x.
func outer(dy, x matrix, depth int) Bounded {
	g := newMatrix(dy.cols, x.cols)
	g.product(dy.t(), x, depth)
	return g.settle(depth).bounded()
}

// columns is the gradient of a bias: the sum over tokens of dy.
func columns(dy matrix, depth int) Bounded {
	g := newMatrix(1, dy.cols)
	k := gamma(depth)
	for i := range dy.v {
		x := dy.at(i)
		g.v[i%dy.cols] += x.v
		g.e[i%dy.cols] += x.e + k*(math.Abs(x.v)+x.e)
	}
	return g.settle(depth).bounded()
}

// sum is x + y, element by element.
func sum(x, y matrix) matrix {
	out := newMatrix(x.rows, x.cols)
	for i := range x.v {
		out.set(i, x.at(i).add(y.at(i)))
	}
	return out
}
