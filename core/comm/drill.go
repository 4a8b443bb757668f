package comm

import (
	"context"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Drill drills the ranks that this process hosts; comms holds their ends of the
// world, be gives their backends by world rank. The records come rank after
// rank, each rank's as drill.Plan lists them. A rank stops at its first error, which
// its last record holds, and closes its end so that no peer waits for it.
func Drill(ctx context.Context, comms []Communicator, be func(rank int) kernels.Backend, seed uint64, level int) []drill.Record {
	each := make([][]drill.Record, len(comms))
	var wait sync.WaitGroup
	for i, c := range comms {
		wait.Go(func() {
			r := &driller{ctx: ctx, be: be(c.Ranks()[c.Rank()])}
			if !r.world(c, seed, level) {
				_ = guard.Do(c.Close) // its last record has what it broke down at
			}
			each[i] = r.records
		})
	}
	wait.Wait()
	return slices.Concat(each...)
}

// DrillMisfit lets the ranks that this process hosts call the operations of a
// misfit, one each, and gives what they were told, by their order in comms, which
// are of a world of their own: a group that has failed stays failed. Every rank then
// closes its end, so that no peer waits for one that was told nothing. A panic of a
// communicator that serves what does not fit is what its rank was told.
func DrillMisfit(ctx context.Context, comms []Communicator, be func(rank int) kernels.Backend, m drill.Misfit) []error {
	errs := make([]error, len(comms))
	var wait sync.WaitGroup
	for i, c := range comms {
		wait.Go(func() {
			defer c.Close()
			defer func() {
				if p := recover(); p != nil {
					errs[i] = guard.Of(p)
				}
			}()
			rank := c.Ranks()[c.Rank()]
			r := &driller{ctx: ctx, be: be(rank)}
			_, errs[i] = r.step(c, m.Calls[rank])
		})
	}
	wait.Wait()
	return errs
}

// driller drills one rank.
type driller struct {
	ctx     context.Context
	be      kernels.Backend
	records []drill.Record
}

// world runs the plan on c and its splits, until an operation fails.
func (r *driller) world(c Communicator, seed uint64, level int) bool {
	world := c.Ranks()
	rank := world[c.Rank()]
	for it := range drill.Iterations(level) {
		if !r.group(c, drill.Steps(world, rank, seed, it, level)) {
			return false
		}
		for _, cut := range drill.Cuts(len(world), level) {
			if !r.cut(c, cut, rank, seed, it, level) {
				return false
			}
		}
	}
	return true
}

// cut splits c and runs the steps of the new group.
func (r *driller) cut(c Communicator, cut drill.Cut, rank int, seed uint64, iteration, level int) bool {
	n := c.Size()
	group := cut.Group(c.Ranks(), rank)
	sub, err := split(r.ctx, c, cut.Color(c.Rank(), n), cut.Key(c.Rank(), n))
	rec := drill.Split(group, rank, iteration)
	switch {
	case err != nil:
		rec.Err = err.Error()
	case group == nil && sub == nil:
		return true
	case group == nil || sub == nil:
		rec.Err = "split gave a group to a rank that joins none, or none to one that does"
	default:
		rec.Digest = drill.DigestGroup(sub.Ranks(), sub.Rank())
	}
	r.records = append(r.records, rec)
	if rec.Err != "" || rec.Digest != drill.Expect(rec) {
		return false
	}
	return r.group(sub, drill.Steps(group, rank, seed, iteration, level)) && guard.Do(sub.Close) == nil
}

// split is c.Split, with a panic as its error.
func split(ctx context.Context, c Communicator, color, key int) (sub Communicator, err error) {
	defer guard.Into(&err)
	return c.Split(ctx, color, key)
}

// guarded is step, with a panic as its error.
func (r *driller) guarded(c Communicator, rec drill.Record) (d kernels.Digest, err error) {
	defer guard.Into(&err)
	return r.step(c, rec)
}

// group runs steps on c until one fails.
func (r *driller) group(c Communicator, steps []drill.Record) bool {
	for _, rec := range steps {
		d, err := r.guarded(c, rec)
		if err != nil {
			rec.Err = err.Error()
		}
		rec.Digest = d
		r.records = append(r.records, rec)
		if err != nil {
			return false
		}
	}
	return true
}

// step runs one operation and digests what came out.
func (r *driller) step(c Communicator, rec drill.Record) (kernels.Digest, error) {
	switch rec.Op {
	case names.OpBarrier:
		return kernels.Digest{}, c.Barrier(r.ctx)
	case names.OpSplit: // of a misfit
		_, err := c.Split(r.ctx, 0, 0)
		return kernels.Digest{}, err
	case names.OpAllReduceInt:
		x := rec.Words()
		err := c.AllReduceInt(r.ctx, x, rec.Operation())
		return drill.DigestWords(x), err
	case names.OpAllGatherBytes:
		all, err := c.AllGatherBytes(r.ctx, rec.Bytes())
		return drill.DigestBytes(all), err
	}
	return r.tensorStep(c, rec)
}

// tensorStep runs an operation on tensors.
func (r *driller) tensorStep(c Communicator, rec drill.Record) (d kernels.Digest, err error) {
	me := c.Rank()
	own := rec.Part(me)
	whole, err := r.tensor(rec.Count)
	if err != nil {
		return d, err
	}
	defer r.be.Free(whole.Buf)
	part := whole.Range(own.Lo, own.Hi)
	if !rec.InPlace {
		if part, err = r.tensor(own.Len()); err != nil {
			return d, err
		}
		defer r.be.Free(part.Buf)
	}
	r.prepare(rec, whole, part, own.Lo)
	op, peer := rec.Operation(), slices.Index(rec.Group, rec.Peer)
	switch rec.Op {
	case names.OpAllReduce:
		err = c.AllReduce(r.ctx, whole, op)
	case names.OpReduceScatter:
		err = c.ReduceScatter(r.ctx, part, whole, rec.Bounds, op)
		if err == nil {
			return r.digest(part, whole, rec.InPlace)
		}
	case names.OpAllGather:
		err = c.AllGather(r.ctx, whole, part, rec.Bounds)
	case names.OpBroadcast:
		err = c.Broadcast(r.ctx, whole, peer)
	case names.OpSend:
		err = c.Send(r.ctx, whole, peer)
	case names.OpRecv:
		err = c.Recv(r.ctx, whole, peer)
	}
	if err != nil {
		return d, err
	}
	return r.digest(whole, whole, true)
}

// tensor allocates n elements between guards, all stale.
func (r *driller) tensor(n int) (kernels.Tensor, error) {
	host := drill.Buffer(n)
	buf, err := r.be.Alloc(len(host))
	if err != nil {
		return kernels.Tensor{}, err
	}
	whole := kernels.Flat(buf)
	r.be.Write(whole, host)
	return whole.Range(drill.Guards, drill.Guards+n), nil
}

// prepare writes the rank's input where the operation reads it.
func (r *driller) prepare(rec drill.Record, whole, part kernels.Tensor, first int) {
	into := whole
	switch rec.Op {
	case names.OpAllGather:
		into = part
	case names.OpRecv:
		return
	case names.OpBroadcast:
		if rec.Peer != rec.Rank {
			return
		}
		first = 0
	default:
		first = 0
	}
	host := make([]float32, into.Len())
	rec.Fill(host, first)
	r.be.Write(into, host)
}

// digest reads a result that lies in the buffer of whole, or in one of its own,
// and the guards of that buffer. Elements of whole beside the result are not
// part of it.
func (r *driller) digest(result, whole kernels.Tensor, inPlace bool) (kernels.Digest, error) {
	if !inPlace {
		whole = result
	}
	host := make([]float32, whole.Len()+2*drill.Guards)
	if err := r.be.Read(host, kernels.Flat(whole.Buf)); err != nil {
		return kernels.Digest{}, err
	}
	return drill.DigestFloats(host, result.Off, result.Off+result.Len()), nil
}
