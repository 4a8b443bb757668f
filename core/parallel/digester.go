package parallel

import (
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Digester records what a rank's flat buffers hold, parameter by parameter.
// Without a recorder it does nothing.
type Digester struct {
	Evidence *Evidence
	Backend  kernels.Backend
	Layout   *model.Layout
	// Once says that this rank's copies are the ones that count among
	// data-parallel replicas.
	Once bool
	// Capture attaches the elements.
	Capture bool
}

// Record hands an event to the recorder.
func (e *Digester) Record(ev trace.Event) { trace.Record(e.Evidence.Recorder, ev) }

// Digests records one digest event per parameter that has elements in r, a
// range of the rank's flat buffers; at holds the elements of r. Beside the digest
// stands the sum of squares, by which a factor shows. The event's
// Step, What and Worker come from proto, Lo and Hi say which elements of the
// flat buffers it covers.
func (e *Digester) Digests(proto trace.Event, at kernels.Tensor, r shard.Range) error {
	if e.Evidence.Recorder == nil {
		return nil
	}
	var err error
	var squares *kernels.SquareSum
	e.Layout.Pieces(r, func(p *model.Param, local shard.Range) {
		ev, x := proto, at.Range(p.Off+local.Lo-r.Lo, p.Off+local.Hi-r.Lo)
		d := new(kernels.Digest)
		squares = e.Evidence.squares(squares)
		AddDigest(d, e.Evidence.Sums, p, local, x)
		e.Evidence.Sums.SumSquares(squares, x)
		ev.Kind, ev.Tensor, ev.Unit = trace.KindDigest, p.Name, e.Layout.Units[p.Unit].Name
		ev.Count, ev.Digest, ev.Once = int64(x.Len()), d, e.Once && p.Counts
		ev.Lo, ev.Hi = int64(p.Off+local.Lo), int64(p.Off+local.Hi)
		if e.Capture {
			ev.Data = make(trace.Floats, x.Len())
			if rerr := e.Backend.Read(ev.Data, x); rerr != nil && err == nil {
				err = rerr
			}
		}
		e.Evidence.Record(ev, squares, nil)
	})
	return err
}

// Hasher is a backend, or its sums.
type Hasher interface {
	Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place)
}

// AddDigest adds to d the digest of elements local (of this rank's part) of p,
// which x holds.
func AddDigest(d *kernels.Digest, be Hasher, p *model.Param, local shard.Range, x kernels.Tensor) {
	p.Places(local, func(r shard.Range, rows, cols int, at kernels.Place) {
		be.Hash(d, x.Range(r.Lo-local.Lo, r.Hi-local.Lo).As(rows, cols), at)
	})
}

// Changed records, per parameter in r, the elements that differ between now
// and before, both of which hold the elements of r.
func (e *Digester) Changed(step int, now, before kernels.Tensor, r shard.Range) {
	if e.Evidence.Recorder == nil {
		return
	}
	e.Layout.Pieces(r, func(p *model.Param, local shard.Range) {
		var d kernels.Digest
		var count int
		base := p.Off - r.Lo
		p.Places(local, func(s shard.Range, rows, cols int, at kernels.Place) {
			x := now.Range(base+s.Lo, base+s.Hi).As(rows, cols)
			old := before.Range(base+s.Lo, base+s.Hi).As(rows, cols)
			e.Evidence.Sums.HashChanged(&d, &count, x, old, at)
		})
		e.Evidence.Record(trace.Event{Kind: trace.KindChanged, Step: step, Tensor: p.Name,
			Unit: e.Layout.Units[p.Unit].Name, Digest: &d, Once: e.Once && p.Counts}, nil, &count)
	})
}

// Unmoved records, per parameter in r, the ranges of elements (of the rank's
// part of the parameter) whose bits are still the initial ones.
func (e *Digester) Unmoved(c *model.Config, seed uint64, step int, at kernels.Tensor, r shard.Range) error {
	if e.Evidence.Recorder == nil {
		return nil
	}
	var err error
	e.Layout.Pieces(r, func(p *model.Param, local shard.Range) {
		n := local.Len()
		now, initial := make([]float32, n), make([]float32, n)
		if rerr := e.Backend.Read(now, at.Range(p.Off+local.Lo-r.Lo, p.Off+local.Hi-r.Lo)); rerr != nil && err == nil {
			err = rerr
		}
		c.Initial(p, local, seed, initial)
		ev := trace.Event{Kind: trace.KindUnmoved, Step: step, Tensor: p.Name, Unit: e.Layout.Units[p.Unit].Name, Once: e.Once && p.Counts}
		for i := 0; i < n; i++ {
			if kernels.Bits(now[i]) != kernels.Bits(initial[i]) {
				continue
			}
			lo := i
			for i < n && kernels.Bits(now[i]) == kernels.Bits(initial[i]) {
				i++
			}
			ev.Ranges = append(ev.Ranges, [2]int64{int64(local.Lo + lo), int64(local.Lo + i)})
			ev.Count += int64(i - lo)
		}
		e.Record(ev)
	})
	return err
}
