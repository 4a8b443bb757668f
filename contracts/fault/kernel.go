package fault

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// First is the first element of x.
func First(x kernels.Tensor) kernels.Tensor {
	return kernels.Tensor{Buf: x.Buf, Off: x.Off, Rows: 1, Cols: 1, Stride: 1}
}

// Flip inverts one bit of the first element of x.
func Flip(be kernels.Backend, x kernels.Tensor, bit uint) error {
	v := make([]float32, 1)
	if err := be.Read(v, First(x)); err != nil {
		return err
	}
	v[0] = math.Float32frombits(math.Float32bits(v[0]) ^ 1<<bit)
	be.Write(First(x), v)
	return nil
}

// AfterProduct calls f once on one rank, after its n-th product c of a row-major
// matrix with a transposed one, w (MatMulNT; n from 0, empty products not
// counted).
func AfterProduct(rank, n int, f func(be kernels.Backend, c, w kernels.Tensor)) Fault {
	return OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &product{Backend: be, left: n, f: f} })
}

// product is a backend one of whose products is followed by f.
type product struct {
	kernels.Backend
	left int // products before it
	f    func(be kernels.Backend, c, w kernels.Tensor)
}

func (p *product) MatMulNT(c, a, w kernels.Tensor, groups []int) {
	p.Backend.MatMulNT(c, a, w, groups)
	if c.Len() == 0 {
		return
	}
	if p.left == 0 {
		p.f(p.Backend, c, w)
	}
	p.left--
}

// Corrupt flips one bit of the first element of one rank's n-th matrix product,
// as a faulty unit of a processor does.
func Corrupt(rank, n int, bit uint) Fault {
	return AfterProduct(rank, n, func(be kernels.Backend, c, _ kernels.Tensor) {
		_ = Flip(be, c, bit) // a read error is a fault of the device, which shows by itself
	})
}
