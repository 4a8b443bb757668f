package independent

import "fmt"

// trail judges pinned tensors and replaces them by what was recorded. A nil
// trail has no pins.
type trail struct {
	pins   Pins
	judged []Judged
	silent bool // what was judged before is replaced only
}

// pass makes a tensor, judges it where it is pinned, and gives the one to go on
// from: that is what was recorded, and where it was judged before nothing is made.
func (t *trail) pass(name string, rows, cols int, make func() matrix) (matrix, error) {
	if t == nil {
		return make(), nil
	}
	rec, ok := t.pins[name]
	switch {
	case !ok:
		return make(), nil
	case len(rec) != rows*cols:
		return matrix{}, fmt.Errorf("independent model: pinned %s: %d elements, want %d", name, len(rec), rows*cols)
	case !t.silent:
		x := make()
		if x.rows != rows || x.cols != cols {
			return matrix{}, fmt.Errorf("independent model: %s has %d x %d elements, want %d x %d", name, x.rows, x.cols, rows, cols)
		}
		j := x.view().Judge(name, rec)
		j.Width = x.width()
		t.judged = append(t.judged, j)
	}
	return given(rows, cols, rec), nil
}

// stages runs the steps of a block over whole sequences of n tokens; after the
// first error its matrices are empty.
type stages struct {
	m     *Model
	l, n  int
	trail *trail
	err   error
}

func (s *stages) pin(what string, cols int, make func() matrix) matrix {
	if s.err != nil {
		return newMatrix(s.n, cols)
	}
	var x matrix
	if x, s.err = s.trail.pass(fmt.Sprintf("block.%d/%s", s.l, what), s.n, cols, make); s.err != nil {
		return newMatrix(s.n, cols)
	}
	return x
}

func (s *stages) name(what string) string { return InBlock(s.l, what) }

// linear is x*W' + b, of a sum of groups where it is grouped.
func (s *stages) linear(x matrix, what string, grouped bool) matrix {
	depth := x.cols
	if grouped {
		depth = s.m.grouped(x.cols)
	}
	return s.m.linear(x, s.name(what+".weight"), s.name(what+".bias"), depth)
}

// inner is what a block computes on the way, up to the gate and the up
// projection.
type inner struct {
	mid            matrix
	norm1, norm2   normed
	q, k, v, joint matrix // rotated q and k; joint is the attention's result
	gate, up       matrix
}

// enter computes the inside of a block from its input: n1 = norm(x); q, k, v =
// n1*W' + b; mid = x + (attention*Wo' + b); n2 = norm(mid); gate, up = n2*W' + b.
func (s *stages) enter(x matrix) *inner {
	m, in := s.m, &inner{}
	c := &m.shape
	qd, kd := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	in.norm1 = s.normed("n1", "input_layernorm.weight", x)
	project := func(pin, what string, n normed, cols int) matrix {
		return s.pin(pin, cols, func() matrix { return s.linear(n.y, what, false) })
	}
	in.q = m.rope.apply(project("q", "self_attn.q_proj", in.norm1, qd), c.SeqLen, false)
	in.k = m.rope.apply(project("k", "self_attn.k_proj", in.norm1, kd), c.SeqLen, false)
	in.v = project("v", "self_attn.v_proj", in.norm1, kd)
	in.joint = s.pin("attention", qd, func() matrix { return m.attention(in.q, in.k, in.v).forward() })
	in.mid = s.pin("mid", c.Hidden, func() matrix { return sum(x, s.linear(in.joint, "self_attn.o_proj", true)) })
	in.norm2 = s.normed("n2", "post_attention_layernorm.weight", in.mid)
	in.gate = project("gate", "mlp.gate_proj", in.norm2, c.Intermediate)
	in.up = project("up", "mlp.up_proj", in.norm2, c.Intermediate)
	return in
}

// normed is a norm's result, pinned, with the rows' rstd as evaluated.
func (s *stages) normed(pin, what string, x matrix) normed {
	n := rmsNorm(x, s.m.weights[s.name(what)], s.m.shape.NormEps)
	n.y = s.pin(pin, x.cols, func() matrix { return n.y })
	return n
}

// forward is mid + (swiglu(gate, up)*Wd' + b).
func (s *stages) forward(x matrix) matrix {
	in := s.enter(x)
	return sum(in.mid, s.linear(swiGLU(in.gate, in.up), "mlp.down_proj", true))
}

// backward takes the gradient of the block's output to that of its input, adding
// the gradients of its parameters to grads.
func (s *stages) backward(x, dy matrix, grads map[string]Bounded) matrix {
	s.trail.quiet(true)
	in := s.enter(x)
	s.trail.quiet(false)
	dmid := s.feedForwardBack(in, dy, grads)
	return s.attentionBack(x, in, dmid, grads)
}

// feedForwardBack is the gradient of the residual stream between the halves.
func (s *stages) feedForwardBack(in *inner, dy matrix, grads map[string]Bounded) matrix {
	m, c := s.m, &s.m.shape
	s.weigh("mlp.down_proj", dy, swiGLU(in.gate, in.up), grads)
	var dup matrix
	dgate := s.pin("dgate", c.Intermediate, func() (dz matrix) {
		dh := m.chained(1, branch{dy, s.name("mlp.down_proj.weight")})
		dz, dup = swiGLUGrad(dh, in.gate, in.up)
		return dz
	})
	dup = s.pin("dup", c.Intermediate, func() matrix { return dup })
	s.weigh("mlp.gate_proj", dgate, in.norm2.y, grads)
	s.weigh("mlp.up_proj", dup, in.norm2.y, grads)
	dn := s.pin("dmlp", c.Hidden, func() matrix {
		return m.chained(m.Groups, branch{dgate, s.name("mlp.gate_proj.weight")}, branch{dup, s.name("mlp.up_proj.weight")})
	})
	return s.pin("dmid", c.Hidden, func() matrix {
		return s.norm("post_attention_layernorm.weight", dn, in.mid, in.norm2, dy, grads)
	})
}

// attentionBack is the gradient of the block's input.
func (s *stages) attentionBack(x matrix, in *inner, dmid matrix, grads map[string]Bounded) matrix {
	m, c := s.m, &s.m.shape
	qd, kd := in.q.cols, in.k.cols
	s.weigh("self_attn.o_proj", dmid, in.joint, grads)
	djoint := s.pin("dattention", qd, func() matrix { return m.chained(1, branch{dmid, s.name("self_attn.o_proj.weight")}) })
	dq, dk, dv := m.attention(in.q, in.k, in.v).backward(djoint)
	dq = s.pin("dq", qd, func() matrix { return m.rope.apply(dq, c.SeqLen, true) })
	dk = s.pin("dk", kd, func() matrix { return m.rope.apply(dk, c.SeqLen, true) })
	dv = s.pin("dv", kd, func() matrix { return dv })
	s.weigh("self_attn.q_proj", dq, in.norm1.y, grads)
	s.weigh("self_attn.k_proj", dk, in.norm1.y, grads)
	s.weigh("self_attn.v_proj", dv, in.norm1.y, grads)
	dn := s.pin("dattn", c.Hidden, func() matrix {
		return m.back(m.grouped(qd, kd, kd), branch{dq, s.name("self_attn.q_proj.weight")},
			branch{dk, s.name("self_attn.k_proj.weight")}, branch{dv, s.name("self_attn.v_proj.weight")})
	})
	return s.pin("dx", c.Hidden, func() matrix { return s.norm("input_layernorm.weight", dn, x, in.norm1, dmid, grads) })
}

// weigh puts down the gradients of a linear layer's weight and bias, from that of
// its output and its input.
func (s *stages) weigh(what string, dy, x matrix, grads map[string]Bounded) {
	depth := s.m.depth(s.n / s.m.shape.SeqLen)
	grads[s.name(what+".weight")] = outer(dy, x, depth)
	if bias := s.name(what + ".bias"); s.m.weights[bias] != nil {
		grads[bias] = columns(dy, depth)
	}
}

// norm is the gradient of a norm's input, added to res.
func (s *stages) norm(what string, dn, x matrix, n normed, res matrix, grads map[string]Bounded) matrix {
	name := s.name(what)
	dx, dw := rmsNormGrad(dn, x, n.rstd, s.m.weights[name], res, s.m.depth(s.n/s.m.shape.SeqLen))
	grads[name] = dw.bounded()
	return dx
}

func (t *trail) quiet(on bool) {
	if t != nil {
		t.silent = on
	}
}
