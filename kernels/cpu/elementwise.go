package cpu

import "github.com/lockstep-ml/lockstep/kernels"

// Fill implements kernels.Kernels.
func (b *Backend) Fill(x kernels.Tensor, v float64) {
	if b.isa == nil {
		b.Backend.Fill(x, v)
		return
	}
	kernels.CheckFill(x)
	b.elementwise(pathFill, b.isa.fill, [12]float32{float32(v)}, x.Len(), 1, x)
}

// Add implements kernels.Kernels.
func (b *Backend) Add(dst, x, y kernels.Tensor) {
	if b.isa == nil {
		b.Backend.Add(dst, x, y)
		return
	}
	kernels.CheckAdd(dst, x, y)
	b.elementwise(pathAdd, b.isa.add, [12]float32{}, dst.Len(), 1, dst, x, y)
}

// Scale implements kernels.Kernels.
func (b *Backend) Scale(dst, x kernels.Tensor, s float64) {
	if b.isa == nil {
		b.Backend.Scale(dst, x, s)
		return
	}
	kernels.CheckScale(dst, x)
	b.elementwise(pathScale, b.isa.scale, [12]float32{float32(s)}, dst.Len(), 1, dst, x)
}

// SwiGLU implements kernels.Kernels.
func (b *Backend) SwiGLU(h, z, u kernels.Tensor) {
	if b.isa == nil {
		b.Backend.SwiGLU(h, z, u)
		return
	}
	kernels.CheckSwiGLU(h, z, u)
	b.elementwise(pathSwiGLU, b.isa.swiglu, [12]float32{}, h.Len(), 1, h, z, u)
}

// SwiGLUGrad implements kernels.Kernels.
func (b *Backend) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	if b.isa == nil {
		b.Backend.SwiGLUGrad(dz, du, dh, z, u)
		return
	}
	kernels.CheckSwiGLUGrad(dz, du, dh, z, u)
	b.elementwise(pathSwiGLUGrad, b.isa.swigluGrad, [12]float32{}, dz.Len(), 2, dz, du, dh, z, u)
}

// AdamW implements kernels.Kernels.
func (b *Backend) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	if b.isa == nil {
		b.Backend.AdamW(w, m, v, g, p)
		return
	}
	kernels.CheckAdamW(w, m, v, g)
	s := [12]float32{float32(p.Coef), float32(p.Beta1), float32(1 - p.Beta1), float32(p.Beta2), float32(1 - p.Beta2), float32(p.C1), float32(p.C2), float32(p.Eps), float32(p.Decay), -float32(p.LR)}
	b.elementwise(pathAdamW, b.isa.adamw, s, w.Len(), 0, w, m, v, g)
}

// SGD implements kernels.Kernels.
func (b *Backend) SGD(w, buf, g kernels.Tensor, p kernels.SGDParams) {
	if b.isa == nil {
		b.Backend.SGD(w, buf, g, p)
		return
	}
	kernels.CheckSGD(w, buf, g)
	s := [12]float32{float32(p.Coef), float32(p.Momentum), float32(p.Decay), -float32(p.LR)}
	b.elementwise(pathSGD, b.isa.sgd, s, w.Len(), 0, w, buf, g)
}
