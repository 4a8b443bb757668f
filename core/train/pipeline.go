package train

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// stage runs one rank's actions of a step.
type stage struct {
	r       *rank
	actions []schedule.Action
	micros  []parallel.MicroBatch
	// acts holds inputs that have arrived, until the forward pass takes them.
	acts map[[2]int]*model.Acts
	// grads holds output gradients that have arrived, and input gradients that
	// wait to be sent, by direction, chunk and micro-batch.
	grads map[[3]int]kernels.Tensor
}

// Directions of a gradient in stage.grads.
const (
	arriving = iota
	leaving
)

// newStage makes the stage follow the plan's schedule; of a pipeline of one stage
// all schedules are one, a micro-batch forward and backward after the other.
func (r *rank) newStage() (*stage, error) {
	p := r.cfg.Plan
	name := p.Schedule
	if p.PP == 1 {
		name = schedule.NameOneF1B
	}
	sched, err := schedule.Named(name, p.PP, p.Virtual, p.MicroBatches)
	if err != nil {
		return nil, err
	}
	if r.hooks.Schedule != nil {
		sched = r.hooks.Schedule(r.id, sched)
	}
	return &stage{r: r, actions: sched.Stages[r.mesh.At.PP], acts: map[[2]int]*model.Acts{}, grads: map[[3]int]kernels.Tensor{}}, nil
}

// step runs the micro-batches.
func (s *stage) step(ctx context.Context, micros []parallel.MicroBatch) error {
	s.micros = micros
	clear(s.acts)
	clear(s.grads)
	for _, a := range s.actions {
		if a.Micro < 0 || a.Micro >= len(micros) || a.Chunk < 0 || a.Chunk >= len(s.r.chunks) {
			return fmt.Errorf("%v: the step has %d micro-batches and %d chunks", a, len(micros), len(s.r.chunks))
		}
		if err := s.guarded(ctx, a); err != nil {
			return fmt.Errorf("%v: %w", a, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// guarded is run, with a panic as its error.
func (s *stage) guarded(ctx context.Context, a schedule.Action) (err error) {
	defer guard.Into(&err)
	return s.run(ctx, a)
}

func (s *stage) run(ctx context.Context, a schedule.Action) error {
	c, mb := s.r.chunks[a.Chunk], &s.micros[a.Micro]
	key := [2]int{a.Chunk, a.Micro}
	switch a.Kind {
	case schedule.RecvForward:
		acts, err := c.acts()
		if err != nil {
			return err
		}
		s.acts[key] = acts
		return s.receive(ctx, a, c.model.In(acts, mb.Batch.Seqs))
	case schedule.Forward:
		acts, err := s.input(c, key)
		if err != nil {
			return err
		}
		return c.forward(ctx, mb, acts)
	case schedule.SendForward:
		acts, ok := c.held[a.Micro]
		if !ok {
			return fmt.Errorf("its activations are not here")
		}
		return s.send(ctx, a, acts.Out())
	case schedule.RecvBackward:
		g, err := c.boundary(mb)
		if err != nil {
			return err
		}
		s.grads[[3]int{arriving, a.Chunk, a.Micro}] = g
		return s.receive(ctx, a, g)
	case schedule.Backward:
		return s.backward(ctx, c, a)
	case schedule.SendBackward:
		return s.sendGrad(ctx, c, a)
	}
	return fmt.Errorf("unknown action")
}

func beginsWorker(micros []parallel.MicroBatch, i int) bool { return i == 0 || micros[i-1].EndsWorker }

// input takes the activations that the input was received into; the first
// virtual stage starts with empty ones.
func (s *stage) input(c *chunk, key [2]int) (*model.Acts, error) {
	if c.model.Part().First {
		return c.acts()
	}
	acts, ok := s.acts[key]
	if !ok {
		return nil, fmt.Errorf("its input has not been received")
	}
	delete(s.acts, key)
	return acts, nil
}

func (s *stage) backward(ctx context.Context, c *chunk, a schedule.Action) error {
	mb, key := &s.micros[a.Micro], [3]int{arriving, a.Chunk, a.Micro}
	dout, ok := s.grads[key]
	if !ok && !c.model.Part().Last {
		return fmt.Errorf("the gradient of its output has not been received")
	}
	delete(s.grads, key)
	dx, err := c.backward(ctx, mb, beginsWorker(s.micros, a.Micro), dout)
	if err != nil {
		return err
	}
	if !dout.Absent() {
		c.keep(dout)
	}
	if c.model.Part().First {
		return nil
	}
	// The pass's scratch is reused before the schedule sends: keep a copy.
	g, err := c.boundary(mb)
	if err != nil {
		return err
	}
	s.r.be.Copy(g, dx)
	s.grads[[3]int{leaving, a.Chunk, a.Micro}] = g
	return nil
}

func (s *stage) sendGrad(ctx context.Context, c *chunk, a schedule.Action) error {
	key := [3]int{leaving, a.Chunk, a.Micro}
	g, ok := s.grads[key]
	if !ok {
		return fmt.Errorf("the gradient of its input is not here")
	}
	delete(s.grads, key)
	if err := s.send(ctx, a, g); err != nil {
		return err
	}
	c.keep(g)
	return nil
}

// keep takes back what boundary gave.
func (c *chunk) keep(t kernels.Tensor) {
	c.r.released(t)
	c.edges = append(c.edges, t)
}

// boundary takes a buffer for the micro-batch's activations between stages.
func (c *chunk) boundary(mb *parallel.MicroBatch) (kernels.Tensor, error) {
	rows, cols := mb.Batch.Seqs*c.r.cfg.Model.SeqLen, c.r.cfg.Model.Hidden
	if n := len(c.edges); n > 0 {
		t := c.edges[n-1]
		c.edges = c.edges[:n-1]
		return kernels.Flat(t.Buf).As(rows, cols), nil
	}
	t, err := c.r.meter.Alloc(names.MemOther, c.r.seqs*c.r.cfg.Model.SeqLen*cols)
	if err != nil {
		return t, err
	}
	return t.As(rows, cols), nil
}

func (s *stage) send(ctx context.Context, a schedule.Action, x kernels.Tensor) error {
	s.message(a, x)
	return s.r.mesh.PP.Send(s.label(ctx, a), x, a.Peer)
}

func (s *stage) receive(ctx context.Context, a schedule.Action, x kernels.Tensor) error {
	if err := s.r.mesh.PP.Recv(s.label(ctx, a), x, a.Peer); err != nil {
		return err
	}
	s.message(a, x)
	return nil
}

func (s *stage) label(ctx context.Context, a schedule.Action) context.Context {
	return s.r.labels.On(ctx, comm.Label{Group: names.PP, Tensor: a.Kind.String(), Step: s.r.chunks[0].at.step})
}

// message records what crosses a boundary: both sides digest what they have.
func (s *stage) message(a schedule.Action, x kernels.Tensor) {
	if !s.r.cfg.Recording.Digests {
		return
	}
	ev := trace.Event{Kind: trace.KindMessage, Step: s.r.chunks[0].at.step, Micro: a.Micro, Peer: a.Peer, Op: names.OpRecv, What: trace.Forward,
		Lo: int64(x.Rows), Hi: int64(x.Cols), Count: int64(x.Len())}
	// The boundary is named by the virtual stage on its near side.
	v := a.Chunk*s.r.mesh.Dims.PP + s.r.mesh.At.PP
	switch a.Kind {
	case schedule.SendForward:
		ev.Op = names.OpSend
	case schedule.RecvForward:
		v--
	case schedule.SendBackward:
		ev.Op, ev.What = names.OpSend, trace.Backward
		v--
	case schedule.RecvBackward:
		ev.What = trace.Backward
	}
	ev.Seq = uint64(v)
	var d kernels.Digest
	s.r.seen.Sums.Hash(&d, x, kernels.Place{ID: kernels.TensorID(ev.What), RowStride: uint64(x.Cols)})
	ev.Digest = &d
	s.r.seen.Record(ev, nil, nil)
}

// live records how many micro-batches have activations on this rank.
func (r *rank) live(step int) {
	if r.mesh.PP.Size() == 1 {
		return
	}
	n := 0
	for _, c := range r.chunks {
		n += len(c.held)
	}
	r.log.Record(trace.Event{Kind: trace.KindLive, Step: step, Count: int64(n)})
}
