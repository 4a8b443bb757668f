package independent

import "fmt"

// trail judges pinned tensors and replaces them by what was recorded. A nil
// trail has no pins.
type trail struct {
	pins   Pins
	judged []Judged
	silent bool // what was judged before is replaced only
}

// pass takes a tensor where it arises and gives the one to go on from.
func (t *trail) pass(name string, x matrix) (matrix, error) {
	if t == nil {
		return x, nil
	}
	rec, ok := t.pins[name]
	if !ok {
		return x, nil
	}
	if len(rec) != len(x.v) {
		return x, fmt.Errorf("independent model: pinned %s: %d elements, want %d", name, len(rec), len(x.v))
	}
	if !t.silent {
		t.judged = append(t.judged, Judged{name, x.bounded()})
	}
	return given(x.rows, x.cols, rec), nil
}

// stages runs the steps of a block; after the first error it does nothing.
type stages struct {
	m     *Model
	l     int
	trail *trail
	err   error
}

func (s *stages) pin(what string, x matrix) matrix {
	if s.err != nil {
		return x
	}
	x, s.err = s.trail.pass(fmt.Sprintf("block.%d/%s", s.l, what), x)
	return x
}

func (s *stages) name(what string) string { return InBlock(s.l, what) }

func (s *stages) linear(x matrix, what string) matrix {
	return s.m.linear(x, s.name(what+".weight"), s.name(what+".bias"))
}

// inner is what a block computes on the way, up to the gate and the up
// projection.
type inner struct {
	x, mid         matrix
	norm1, norm2   normed
	q, k, v, joint matrix // rotated q and k; joint is the attention's result
	gate, up       matrix
}

// enter computes the inside of a block from its input: n1 = norm(x); q, k, v =
// n1*W' + b; mid = x + (attention*Wo' + b); n2 = norm(mid); gate, up = n2*W' + b.
func (s *stages) enter(x matrix) *inner {
	m := s.m
	in := &inner{x: x}
	in.norm1 = rmsNorm(x, m.weights[s.name("input_layernorm.weight")], m.shape.NormEps)
	n1 := in.norm1.y
	q, k := s.pin("q", s.linear(n1, "self_attn.q_proj")), s.pin("k", s.linear(n1, "self_attn.k_proj"))
	in.v = s.pin("v", s.linear(n1, "self_attn.v_proj"))
	in.q, in.k = m.rope.apply(q, m.shape.SeqLen, false), m.rope.apply(k, m.shape.SeqLen, false)
	in.joint = s.pin("attention", m.attention(in.q, in.k, in.v).forward())
	in.mid = s.pin("mid", sum(x, s.linear(in.joint, "self_attn.o_proj")))
	in.norm2 = rmsNorm(in.mid, m.weights[s.name("post_attention_layernorm.weight")], m.shape.NormEps)
	in.gate = s.pin("gate", s.linear(in.norm2.y, "mlp.gate_proj"))
	in.up = s.pin("up", s.linear(in.norm2.y, "mlp.up_proj"))
	return in
}

// forward is mid + (swiglu(gate, up)*Wd' + b).
func (s *stages) forward(x matrix) matrix {
	in := s.enter(x)
	return sum(in.mid, s.linear(swiGLU(in.gate, in.up), "mlp.down_proj"))
}

// backward takes the gradient of the block's output to that of its input, adding
// the gradients of its parameters to grads.
func (s *stages) backward(x, dy matrix, grads map[string]Bounded) matrix {
	s.trail.quiet(true)
	in := s.enter(x)
	s.trail.quiet(false)
	m, depth := s.m, s.m.depth(x.rows/s.m.shape.SeqLen)
	linear := func(what string, d, x matrix) {
		grads[s.name(what+".weight")] = outer(d, x, depth)
		if bias := s.name(what + ".bias"); m.weights[bias] != nil {
			grads[bias] = columns(d, depth)
		}
	}
	linear("mlp.down_proj", dy, swiGLU(in.gate, in.up))
	dh := m.back(branch{dy, s.name("mlp.down_proj.weight")})
	dgate, dup := swiGLUGrad(dh, in.gate, in.up)
	dgate, dup = s.pin("dgate", dgate), s.pin("dup", dup)
	linear("mlp.gate_proj", dgate, in.norm2.y)
	linear("mlp.up_proj", dup, in.norm2.y)
	dn := m.back(branch{dgate, s.name("mlp.gate_proj.weight")}, branch{dup, s.name("mlp.up_proj.weight")})
	dmid := s.norm("post_attention_layernorm.weight", dn, in.mid, in.norm2, dy, grads)
	dmid = s.pin("dmid", dmid)

	linear("self_attn.o_proj", dmid, in.joint)
	djoint := s.pin("dattention", m.back(branch{dmid, s.name("self_attn.o_proj.weight")}))
	dq, dk, dv := m.attention(in.q, in.k, in.v).backward(djoint)
	dq = s.pin("dq", m.rope.apply(dq, m.shape.SeqLen, true))
	dk = s.pin("dk", m.rope.apply(dk, m.shape.SeqLen, true))
	dv = s.pin("dv", dv)
	linear("self_attn.q_proj", dq, in.norm1.y)
	linear("self_attn.k_proj", dk, in.norm1.y)
	linear("self_attn.v_proj", dv, in.norm1.y)
	dn = m.back(branch{dq, s.name("self_attn.q_proj.weight")}, branch{dk, s.name("self_attn.k_proj.weight")},
		branch{dv, s.name("self_attn.v_proj.weight")})
	return s.norm("input_layernorm.weight", dn, x, in.norm1, dmid, grads)
}

// norm is the gradient of a norm's input, added to res.
func (s *stages) norm(what string, dn, x matrix, n normed, res matrix, grads map[string]Bounded) matrix {
	name := s.name(what)
	dx, dw := rmsNormGrad(dn, x, n.rstd, s.m.weights[name], res, s.m.depth(x.rows/s.m.shape.SeqLen))
	grads[name] = dw.bounded()
	return dx
}

func (t *trail) quiet(on bool) {
	if t != nil {
		t.silent = on
	}
}

// BlockForward is block layer's output for an input of whole sequences.
func (m *Model) BlockForward(layer int, x []float32) (Bounded, error) {
	in, err := m.rows(layer, "input", x)
	if err != nil {
		return Bounded{}, err
	}
	return (&stages{m: m, l: layer}).forward(in).bounded(), nil
}

// BlockBackward is the gradient of block layer's input and those of its
// parameters, for an input of whole sequences and the gradient of its output.
func (m *Model) BlockBackward(layer int, x, dy []float32) (dx Bounded, grads map[string]Bounded, err error) {
	in, err := m.rows(layer, "input", x)
	if err != nil {
		return dx, nil, err
	}
	out, err := m.rows(layer, "output gradient", dy)
	if err != nil {
		return dx, nil, err
	}
	if in.rows != out.rows {
		return dx, nil, fmt.Errorf("independent model: block %d: %d rows of input, %d of its output's gradient", layer, in.rows, out.rows)
	}
	grads = map[string]Bounded{}
	return (&stages{m: m, l: layer}).backward(in, out, grads).bounded(), grads, nil
}

// rows is x as whole sequences of H columns.
func (m *Model) rows(layer int, what string, x []float32) (matrix, error) {
	if layer < 0 || layer >= m.shape.Layers {
		return matrix{}, fmt.Errorf("independent model: block %d: must lie in [0,%d)", layer, m.shape.Layers)
	}
	if len(x)%(m.shape.SeqLen*m.shape.Hidden) != 0 {
		return matrix{}, fmt.Errorf("independent model: block %d: %s of %d elements: must be whole sequences of %d x %d",
			layer, what, len(x), m.shape.SeqLen, m.shape.Hidden)
	}
	return given(len(x)/m.shape.Hidden, m.shape.Hidden, x), nil
}
