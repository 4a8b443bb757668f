package suite

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// onRank makes the backend of a rank wrong.
func onRank(rank int, f func() faulty) fault.Fault {
	return fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend {
		x := f()
		x.Backend = be
		return &x
	})
}

// onePart flips a bit in the last tile of large products.
func onePart(rank int) fault.Fault {
	return onRank(rank, func() faulty {
		return faulty{matMulNT: func(be kernels.Backend, c, a, b kernels.Tensor, groups []int) {
			be.MatMulNT(c, a, b, groups)
			if c.Rows >= 2*tile {
				flip(be, c, c.Rows-3, c.Cols-5)
			}
		}}
	})
}

// lame has part 1 of a rank's device give a wrong sum, now and then. What is no device says
// that it is one.
func lame(rank int) fault.Fault {
	return fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &limping{Backend: be} })
}

type limping struct {
	kernels.Backend
	asked int
}

func (l *limping) Unwrap() kernels.Backend { return l.Backend }

func (l *limping) inner() kernels.Located {
	if d, ok := kernels.LocatedOf(l.Backend); ok {
		return d
	}
	return whole{}
}

func (l *limping) On() kernels.Device     { return l.inner().On() }
func (l *limping) Spare() (uint64, error) { return l.inner().Spare() }
func (l *limping) Parts() int             { return l.inner().Parts() }

func (l *limping) EachPart(seed uint32) ([]kernels.Part, error) {
	parts, err := l.inner().EachPart(seed)
	for i := range parts {
		if l.asked++; parts[i].ID == 1 && l.asked < 4 {
			parts[i].Sum ^= 1 << 20
		}
	}
	return parts, err
}

// whole is a made device of three parts.
type whole struct{}

func (whole) On() kernels.Device     { return kernels.Device{Name: "made"} }
func (whole) Spare() (uint64, error) { return 8 << 20, nil }
func (whole) Parts() int             { return 3 }

func (whole) EachPart(seed uint32) ([]kernels.Part, error) {
	sum := ref.PartSum(seed)
	return []kernels.Part{{ID: 0, Sum: sum}, {ID: 1, Sum: sum}, {ID: 2, Sum: sum}}, nil
}

// oneBit flips a bit where the fifth copy goes.
func oneBit(rank int) fault.Fault {
	return onRank(rank, func() faulty {
		n := 0
		return faulty{copy: func(be kernels.Backend, dst, src kernels.Tensor) {
			be.Copy(dst, src)
			if n++; n == 5 {
				flip(be, dst, 0, 7)
			}
		}}
	})
}

// oneLine has the seventeenth copy go to where the first went, too.
func oneLine(rank int) fault.Fault {
	return onRank(rank, func() faulty {
		var first kernels.Tensor
		n := 0
		return faulty{copy: func(be kernels.Backend, dst, src kernels.Tensor) {
			be.Copy(dst, src)
			switch n++; n {
			case 1:
				first = dst
			case 17:
				k := min(first.Len(), src.Len())
				be.Copy(first.Range(0, k), src.Range(0, k))
			}
		}}
	})
}

// lastBytes leaves out the last elements of what a rank receives or sums.
func lastBytes(rank int) fault.Fault {
	var be kernels.Backend // backends are made before all else
	return fault.All(fault.OnBackend(rank, func(b kernels.Backend) kernels.Backend {
		be = b
		return b
	}), fault.OnComm(func(r int, _ names.Axis, c comm.Communicator) comm.Communicator {
		if r != rank {
			return c
		}
		return short{c, be}
	}))
}

// short is a communicator that loses the last elements of what others have.
type short struct {
	comm.Communicator
	be kernels.Backend
}

// lost is how many.
const lost = 3

func (s short) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	return s.cut(x, s.Communicator.Recv(ctx, x, from))
}

func (s short) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	return s.cut(x, s.Communicator.AllReduce(ctx, x, op))
}

// cut is what is lost of x.
func (s short) cut(x kernels.Tensor, err error) error {
	if err == nil {
		put(s.be, x.Range(x.Len()-lost, x.Len()), make([]float32, lost))
	}
	return err
}
