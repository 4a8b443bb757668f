package fault

import (
	"context"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/spec"
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

// Plant writes a value into one element of a gradient: the first of the down
// projection's in the first block, of one logical worker in one step, on the rank
// that computes it under the plan of c (the first slice of it). A worker that has
// no sequences, or is none, stands for the last one that has.
func Plant(c spec.Config, step, worker int, value float32) Fault {
	to := target{step, min(worker, c.Plan.Workers(c.Model)-1, c.Sequences-1), firstBlock}
	rank := 0
	for dp := range max(1, c.Plan.DP) {
		if slices.Contains(c.Plan.RankWorkers(c.Model, dp), to.worker) {
			rank = c.Plan.Dims().Rank(names.Coord{DP: dp})
		}
	}
	return func(p *launch.Parts) {
		a := &aim{target: to} // of one run, and in it of one rank's goroutine
		OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &planting{be, a, value} })(p)
		aimed := false
		OnUpdater(rank, func(_ kernels.Backend, u parallel.Updater) parallel.Updater {
			if aimed {
				return u
			}
			aimed = true
			return &aiming{u, a}
		})(p)
	}
}

// firstBlock is the unit of the first block on the first stage.
const firstBlock = 1

// target is a logical worker's gradient of a unit in a step.
type target struct{ step, worker, unit int }

// aim says whether the computation is at its target.
type aim struct {
	target
	now   target
	armed bool
}

// aiming tells when a pass reaches the target.
type aiming struct {
	parallel.Updater
	*aim
}

func (a *aiming) Begin(step int) {
	a.now.step = step
	a.Updater.Begin(step)
}

func (a *aiming) Enter(mb *parallel.MicroBatch) {
	a.now.worker = mb.Worker
	a.Updater.Enter(mb)
}

func (a *aiming) Before(ctx context.Context, unit int, ph model.Phase) error {
	a.now.unit = unit
	a.armed = ph == model.Backward && a.now == a.target
	return a.Updater.Before(ctx, unit, ph)
}

// planting is a backend that writes a value into the target.
type planting struct {
	kernels.Backend
	*aim
	value float32
}

func (p *planting) MatMulTN(c, a, b kernels.Tensor) {
	p.Backend.MatMulTN(c, a, b)
	if p.armed && c.Len() > 0 {
		p.armed = false
		p.Write(First(c), []float32{p.value})
	}
}
