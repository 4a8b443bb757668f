package train

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// joinTied adds the two sources of a tied embedding, embedding + head, on the
// owner of the embedding, after each has gone through its own data tree.
func (r *rank) joinTied(ctx context.Context, step int) error {
	if !r.cfg.Model.Tied {
		return nil
	}
	first, last := r.ends()
	if first != nil && last != nil {
		embed, _ := first.Tied(false)
		head, _ := last.Tied(true)
		for i := range embed {
			r.be.Add(embed[i], embed[i], head[i])
		}
		return nil
	}
	ctx = r.labels.On(ctx, comm.Label{Group: names.PP, Tensor: names.TiedGradient, Step: step})
	if last != nil {
		head, _ := last.Tied(true)
		return r.sendAll(ctx, head, 0)
	}
	if first == nil {
		return nil
	}
	embed, _ := first.Tied(false)
	for _, e := range embed {
		if err := r.receiveAdd(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// receiveAdd adds what the last stage sends to x.
func (r *rank) receiveAdd(ctx context.Context, x kernels.Tensor) error {
	buf, err := r.meter.Borrow(names.MemOther, x.Len())
	if err != nil {
		return err
	}
	defer r.meter.Return(buf)
	if err := r.mesh.PP.Recv(ctx, buf, r.mesh.PP.Size()-1); err != nil {
		return err
	}
	r.be.Add(x, x, buf)
	return nil
}

// copyTied brings the updated embedding to the stage that has the head.
func (r *rank) copyTied(ctx context.Context, step int) error {
	first, last := r.ends()
	if !r.cfg.Model.Tied || (first != nil && last != nil) {
		return nil
	}
	ctx = r.labels.On(ctx, comm.Label{Group: names.PP, Tensor: names.TiedWeight, Step: step})
	if first != nil {
		_, embed := first.Tied(false)
		return r.sendAll(ctx, embed, r.mesh.PP.Size()-1)
	}
	if last == nil {
		return nil
	}
	_, head := last.Tied(true)
	for _, h := range head {
		if err := r.mesh.PP.Recv(ctx, h, 0); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) sendAll(ctx context.Context, xs []kernels.Tensor, to int) error {
	for _, x := range xs {
		if err := r.mesh.PP.Send(ctx, x, to); err != nil {
			return err
		}
	}
	return nil
}

// ends gives the chunks of this rank that hold the embedding and the head.
func (r *rank) ends() (first, last *chunk) {
	if c := r.chunks[0]; c.model.Part().First {
		first = c
	}
	if c := r.chunks[len(r.chunks)-1]; c.model.Part().Last {
		last = c
	}
	return first, last
}
