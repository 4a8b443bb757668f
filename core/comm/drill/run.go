package drill

import (
	"context"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Run drills the ranks that this process hosts; comms holds their ends of the
// world, be gives their backends by world rank. The records come rank after
// rank, each rank's as Plan lists them. A rank stops at its first error, which
// its last record holds, and closes its end so that no peer waits for it.
func Run(ctx context.Context, comms []comm.Communicator, be func(rank int) kernels.Backend, seed uint64, level int) []Record {
	each := make([][]Record, len(comms))
	var wait sync.WaitGroup
	for i, c := range comms {
		wait.Go(func() {
			r := &runner{ctx: ctx, be: be(c.Ranks()[c.Rank()])}
			if !r.world(c, seed, level) {
				c.Close()
			}
			each[i] = r.records
		})
	}
	wait.Wait()
	return slices.Concat(each...)
}

// runner drills one rank.
type runner struct {
	ctx     context.Context
	be      kernels.Backend
	records []Record
}

// world runs the plan on c and its splits, until an operation fails.
func (r *runner) world(c comm.Communicator, seed uint64, level int) bool {
	world := c.Ranks()
	rank := world[c.Rank()]
	for it := range Iterations(level) {
		if !r.group(c, steps(world, rank, seed, it, level)) {
			return false
		}
		for _, cut := range cuts() {
			if !r.cut(c, cut, rank, seed, it, level) {
				return false
			}
		}
	}
	return true
}

// cut splits c and runs the steps of the new group.
func (r *runner) cut(c comm.Communicator, cut cut, rank int, seed uint64, iteration, level int) bool {
	n := c.Size()
	group := cut.group(c.Ranks(), rank)
	sub, err := c.Split(r.ctx, cut.color(c.Rank(), n), cut.key(c.Rank(), n))
	rec := splitRecord(group, rank, iteration)
	switch {
	case err != nil:
		rec.Err = err.Error()
	case group == nil && sub == nil:
		return true
	case group == nil || sub == nil:
		rec.Err = "split gave a group to a rank that joins none, or none to one that does"
	default:
		var d digester
		d.group(sub.Ranks(), sub.Rank())
		rec.Digest = d.sum
	}
	r.records = append(r.records, rec)
	if rec.Err != "" || rec.Digest != Expect(rec) {
		return false
	}
	return r.group(sub, steps(group, rank, seed, iteration, level)) && sub.Close() == nil
}

// group runs steps on c until one fails.
func (r *runner) group(c comm.Communicator, steps []Record) bool {
	for _, rec := range steps {
		d, err := r.step(c, rec)
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
func (r *runner) step(c comm.Communicator, rec Record) (kernels.Digest, error) {
	var d digester
	s := rec.source()
	switch rec.Op {
	case names.OpBarrier:
		return d.sum, c.Barrier(r.ctx)
	case names.OpAllReduceInt:
		x := make([]uint64, rec.Count)
		for i := range x {
			x[i] = s.word(rec.Rank, i)
		}
		err := c.AllReduceInt(r.ctx, x, s.op)
		for i, v := range x {
			d.word(i, v)
		}
		return d.sum, err
	case names.OpAllGatherBytes:
		all, err := c.AllGatherBytes(r.ctx, rec.bytes(rec.Rank))
		for g, b := range all {
			d.bytes(g, b)
		}
		return d.sum, err
	}
	return r.tensorStep(c, rec)
}

// tensorStep runs an operation on tensors.
func (r *runner) tensorStep(c comm.Communicator, rec Record) (d kernels.Digest, err error) {
	me := c.Rank()
	own := rec.part(me)
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
	s, peer := rec.source(), slices.Index(rec.Group, rec.Peer)
	switch rec.Op {
	case names.OpAllReduce:
		err = c.AllReduce(r.ctx, whole, s.op)
	case names.OpReduceScatter:
		err = c.ReduceScatter(r.ctx, part, whole, rec.Bounds, s.op)
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
func (r *runner) tensor(n int) (kernels.Tensor, error) {
	buf, err := r.be.Alloc(n + 2*guards)
	if err != nil {
		return kernels.Tensor{}, err
	}
	host := make([]float32, n+2*guards)
	for j := range host {
		host[j] = stale
		if j < guards || j >= n+guards {
			host[j] = guard(j)
		}
	}
	whole := kernels.Flat(buf)
	r.be.Write(whole, host)
	return whole.Range(guards, guards+n), nil
}

// prepare writes the rank's input where the operation reads it.
func (r *runner) prepare(rec Record, whole, part kernels.Tensor, first int) {
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
	s := rec.source()
	for i := range host {
		host[i] = s.value(rec.Rank, first+i)
	}
	r.be.Write(into, host)
}

// digest reads a result that lies in the buffer of whole, or in one of its own,
// and the guards of that buffer. Elements of whole beside the result are not
// part of it.
func (r *runner) digest(result, whole kernels.Tensor, inPlace bool) (kernels.Digest, error) {
	if !inPlace {
		whole = result
	}
	host := make([]float32, whole.Len()+2*guards)
	if err := r.be.Read(host, kernels.Flat(whole.Buf)); err != nil {
		return kernels.Digest{}, err
	}
	var d digester
	for j, v := range host {
		inside := j >= result.Off && j < result.Off+result.Len()
		if inside || j < guards || j >= len(host)-guards {
			d.float(j, v)
		}
	}
	return d.sum, nil
}
