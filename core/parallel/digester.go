package parallel

import (
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Digester records what a rank's flat buffers hold, parameter by parameter.
// With a nil Recorder it does nothing.
type Digester struct {
	Recorder trace.Recorder
	Backend  kernels.Backend
	Layout   *model.Layout
	// Once says that this rank's copies are the ones that count among
	// data-parallel replicas.
	Once bool
	// Capture attaches the elements.
	Capture bool
}

// Record hands an event to the recorder.
func (e *Digester) Record(ev trace.Event) { trace.Record(e.Recorder, ev) }

// Digests records one digest event per parameter that has elements in r, a
// range of the rank's flat buffers; at holds the elements of r. Beside the digest
// stands the sum of squares, by which a factor shows. The event's
// Step, What and Worker come from proto, Lo and Hi say which elements of the
// flat buffers it covers.
func (e *Digester) Digests(proto trace.Event, at kernels.Tensor, r shard.Range) error {
	if e.Recorder == nil {
		return nil
	}
	var err error
	var squares kernels.SquareSum // one for all
	e.Layout.Pieces(r, func(p *model.Param, local shard.Range) {
		ev, x := proto, at.Range(p.Off+local.Lo-r.Lo, p.Off+local.Hi-r.Lo)
		d := new(kernels.Digest)
		squares = kernels.SquareSum{}
		AddDigest(d, e.Backend, p, local, x)
		e.Backend.SumSquares(&squares, x)
		ev.Squares = trace.Float(squares.Sum())
		ev.Kind, ev.Tensor, ev.Unit = trace.KindDigest, p.Name, e.Layout.Units[p.Unit].Name
		ev.Count, ev.Digest, ev.Once = int64(x.Len()), d, e.Once && p.Counts
		ev.Lo, ev.Hi = int64(p.Off+local.Lo), int64(p.Off+local.Hi)
		if e.Capture {
			ev.Data = make(trace.Floats, x.Len())
			if rerr := e.Backend.Read(ev.Data, x); rerr != nil && err == nil {
				err = rerr
			}
		}
		e.Recorder.Record(ev)
	})
	return err
}

// AddDigest adds to d the digest of elements local (of this rank's part) of p,
// which x holds.
func AddDigest(d *kernels.Digest, be kernels.Backend, p *model.Param, local shard.Range, x kernels.Tensor) {
	p.Places(local, func(r shard.Range, rows, cols int, at kernels.Place) {
		be.Hash(d, x.Range(r.Lo-local.Lo, r.Hi-local.Lo).As(rows, cols), at)
	})
}

// Changed records, per parameter in r, the elements that differ between now
// and before, both of which hold the elements of r.
func (e *Digester) Changed(step int, now, before kernels.Tensor, r shard.Range) {
	if e.Recorder == nil {
		return
	}
	e.Layout.Pieces(r, func(p *model.Param, local shard.Range) {
		var d kernels.Digest
		count, base := 0, p.Off-r.Lo
		p.Places(local, func(s shard.Range, rows, cols int, at kernels.Place) {
			x := now.Range(base+s.Lo, base+s.Hi).As(rows, cols)
			old := before.Range(base+s.Lo, base+s.Hi).As(rows, cols)
			count += e.Backend.HashChanged(&d, x, old, at)
		})
		e.Recorder.Record(trace.Event{Kind: trace.KindChanged, Step: step, Tensor: p.Name,
			Unit: e.Layout.Units[p.Unit].Name, Count: int64(count), Digest: &d, Once: e.Once && p.Counts})
	})
}

// Unmoved records, per parameter in r, the ranges of elements (of the rank's
// part of the parameter) whose bits are still the initial ones.
func (e *Digester) Unmoved(c *model.Config, seed uint64, step int, at kernels.Tensor, r shard.Range) error {
	if e.Recorder == nil {
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
		e.Recorder.Record(ev)
	})
	return err
}
