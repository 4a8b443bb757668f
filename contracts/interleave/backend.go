package interleave

import (
	"github.com/lockstep-ml/lockstep/kernels"
)

// backend is a rank's: before every kernel others may go on, and what the kernel
// uses is checked.
type backend struct {
	kernels.Backend
	s    *Scheduler
	rank int
}

// reads are the tensors that a kernel reads.
type reads []kernels.Tensor

// does is the point before a kernel. What it both reads and writes is in both.
func (b *backend) does(kernel string, in reads, out ...kernels.Tensor) {
	if b.s.current == nil {
		return
	}
	b.s.yield()
	for _, x := range in {
		b.s.touch(kernel, x, false)
	}
	for _, x := range out {
		b.s.touch(kernel, x, true)
	}
}

func (b *backend) Alloc(n int) (kernels.Buffer, error) {
	buf, err := b.Backend.Alloc(n)
	if err == nil && b.s.current != nil {
		b.s.allocated(b.rank, buf)
	}
	return buf, err
}

// Free keeps the memory to the end of the run: who uses it is to be seen, and not
// to find something else there.
func (b *backend) Free(buf kernels.Buffer) {
	if b.s.current == nil {
		b.Backend.Free(buf)
		return
	}
	b.s.Released(b.rank, kernels.Flat(buf))
}

func (b *backend) Sync() error {
	b.does("Sync", nil)
	return b.Backend.Sync()
}

// Host implements kernels.Memory: a write would pass by what is watched.
func (b *backend) Host(kernels.Tensor) ([]float32, bool) { return nil, false }

func (b *backend) Write(dst kernels.Tensor, src []float32) {
	b.does("Write", nil, dst)
	b.Backend.Write(dst, src)
}

func (b *backend) WriteWide(dst kernels.Tensor, src []float64) {
	b.does("WriteWide", nil, dst)
	b.Backend.WriteWide(dst, src)
}

func (b *backend) Read(dst []float32, src kernels.Tensor) error {
	b.does("Read", reads{src})
	return b.Backend.Read(dst, src)
}

func (b *backend) ReadWide(dst []float64, src kernels.Tensor) error {
	b.does("ReadWide", reads{src})
	return b.Backend.ReadWide(dst, src)
}

func (b *backend) Fill(x kernels.Tensor, v float64) {
	b.does("Fill", nil, x)
	b.Backend.Fill(x, v)
}

func (b *backend) Copy(dst, src kernels.Tensor) {
	b.does("Copy", reads{src}, dst)
	b.Backend.Copy(dst, src)
}

func (b *backend) Add(dst, x, y kernels.Tensor) {
	b.does("Add", reads{x, y}, dst)
	b.Backend.Add(dst, x, y)
}

func (b *backend) Scale(dst, x kernels.Tensor, f float64) {
	b.does("Scale", reads{x}, dst)
	b.Backend.Scale(dst, x, f)
}

func (b *backend) AddBias(y, bias kernels.Tensor) {
	b.does("AddBias", reads{y, bias}, y)
	b.Backend.AddBias(y, bias)
}

func (b *backend) Residual(dst, x, y, bias kernels.Tensor) {
	b.does("Residual", reads{x, y, bias}, dst)
	b.Backend.Residual(dst, x, y, bias)
}

func (b *backend) ColumnSum(dst, x kernels.Tensor) {
	b.does("ColumnSum", reads{dst, x}, dst)
	b.Backend.ColumnSum(dst, x)
}

func (b *backend) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	b.does("Reduce", src, dst...)
	b.Backend.Reduce(dst, src, op)
}

func (b *backend) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	b.does("SumSquares", reads{x})
	b.Backend.SumSquares(acc, x)
}

func (b *backend) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	b.does("Hash", reads{x})
	b.Backend.Hash(d, x, at)
}

func (b *backend) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) int {
	b.does("HashChanged", reads{x, old})
	return b.Backend.HashChanged(d, x, old, at)
}

func (b *backend) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	b.does("AdamW", reads{w, m, v, g}, w, m, v)
	b.Backend.AdamW(w, m, v, g, p)
}

func (b *backend) SGD(w, buf, g kernels.Tensor, p kernels.SGDParams) {
	b.does("SGD", reads{w, buf, g}, w, buf)
	b.Backend.SGD(w, buf, g, p)
}
