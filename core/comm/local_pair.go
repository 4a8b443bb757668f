package comm

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels"
)

// pair holds what waits between one sender and one receiver: at most one post,
// of either side.
type pair struct {
	sent, wanted *post
	seq          uint64 // messages of Send and Recv so far
}

// post is one side of a message. The receiver copies straight from the
// sender's buffer, so the sender stays until it has.
type post struct {
	tensor kernels.Tensor // the sender's
	count  int
	other  *post         // of a receiver: the sender's post, once it came
	taken  bool          // of a sender: a receiver has come
	ready  chan struct{} // gives a value, of a receiver: the sender came; of a sender: copied
	err    error         // of a sender: why copying failed; read after ready
}

// renew makes p a new post of count elements. It has been met, or never used:
// one that was given up belongs to a call that is not used again.
func (p *post) renew(x kernels.Tensor, count int) *post {
	if p.ready == nil {
		p.ready = make(chan struct{}, 1)
	}
	*p = post{tensor: x, count: count, ready: p.ready}
	return p
}

// offer posts x for rank to. k is the call on whose behalf: a message, or a
// collective of the ring and the star.
func (c *local) offer(k *call, to int, x kernels.Tensor) (*post, error) {
	g := c.g
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	p := k.out.renew(x, x.Len())
	pr, err := g.pair(c.rank, k, [2]int{c.rank, to})
	if err != nil {
		return nil, err
	}
	if r := pr.wanted; r != nil {
		if err := g.connect(pr, c.rank, k, to, p, r); err != nil {
			return nil, err
		}
		r.ready <- struct{}{}
		return p, nil
	}
	pr.sent = p
	return p, g.checkStuck(c.rank, k)
}

// delivered waits until the receiver has copied p.
func (c *local) delivered(ctx context.Context, k *call, to int, p *post) error {
	w := c.g.w
	why := w.wait(ctx, &k.alarm, p.ready)
	if why == nil {
		return p.err
	}
	w.mu.Lock()
	taken := p.taken
	if !taken {
		c.g.pairs[[2]int{c.rank, to}].sent = nil
		c.g.interrupted(c.rank, k, why, []int{c.g.ranks[to]})
	}
	w.mu.Unlock()
	if !taken {
		return errWorldFailed
	}
	if w.settle(&k.alarm, p.ready) != nil {
		return ErrDeadline
	}
	return p.err
}

// receive waits for what rank from offers and hands it to take, which copies or
// reduces it.
func (c *local) receive(ctx context.Context, k *call, from, count int, take func(kernels.Tensor)) error {
	p, err := c.want(k, from, count)
	if err != nil {
		return err
	}
	w := c.g.w
	if why := w.wait(ctx, &k.alarm, p.ready); why != nil {
		w.mu.Lock()
		if p.other == nil {
			defer w.mu.Unlock()
			c.g.pairs[[2]int{from, c.rank}].wanted = nil
			c.g.interrupted(c.rank, k, why, []int{c.g.ranks[from]})
			return errWorldFailed
		}
		w.mu.Unlock()
		<-p.ready // the sender came meanwhile and counts on this rank
	}
	k.moved += 4 * int64(count)
	return c.take(p.other, take)
}

// want posts that this rank waits for count elements of rank from.
func (c *local) want(k *call, from, count int) (*post, error) {
	g := c.g
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	p := k.in.renew(kernels.Tensor{}, count)
	pr, err := g.pair(c.rank, k, [2]int{from, c.rank})
	if err != nil {
		return nil, err
	}
	if s := pr.sent; s != nil {
		if err := g.connect(pr, c.rank, k, from, s, p); err != nil {
			return nil, err
		}
		p.ready <- struct{}{}
		return p, nil
	}
	pr.wanted = p
	return p, g.checkStuck(c.rank, k)
}

// take runs the receiver's part on the sender's tensor and lets the sender go.
// A fault of this rank's backend, or a panic, fails the world.
func (c *local) take(sent *post, take func(kernels.Tensor)) error {
	err := ErrPanicked
	defer func() {
		if err != nil {
			c.g.w.mu.Lock()
			c.g.w.fail(failure{c.me(), fmt.Errorf("rank %d could not receive: %w", c.me(), err)})
			c.g.w.mu.Unlock()
			sent.err = errWorldFailed
		}
		sent.ready <- struct{}{}
	}()
	take(sent.tensor)
	if err = c.be.Sync(); err != nil {
		return errWorldFailed
	}
	return nil
}

// pair finds the pair of (sender, receiver) for a call of rank; a message is
// admitted first.
func (g *group) pair(rank int, k *call, key [2]int) (*pair, error) {
	pr := g.pairs[key]
	if pr == nil {
		pr = &pair{}
		g.pairs[key] = pr
	}
	if !k.isMessage() {
		if g.w.first != nil {
			return nil, errWorldFailed
		}
		return pr, nil
	}
	k.seq = pr.seq
	if g.admit(rank, k) != nil {
		return nil, errWorldFailed
	}
	if peer := g.ranks[k.peer]; g.hasLeft(peer) {
		g.w.fail(needsLeft(g.ranks, peer, &k.header))
		return nil, errWorldFailed
	}
	return pr, nil
}

// connect brings a sender's and a receiver's post together: call k of rank, and
// what rank other, which came first, is in.
func (g *group) connect(pr *pair, rank int, k *call, other int, sent, wanted *post) error {
	if sent.count != wanted.count {
		g.w.fail(unfit(k.said(g.ranks, rank), g.busy[other].said(g.ranks, other)))
		return errWorldFailed
	}
	if k.isMessage() {
		k.served, g.busy[other].served = true, true
		g.busy[other].goesOn()
		pr.seq++
	}
	pr.sent, pr.wanted = nil, nil
	sent.taken, wanted.other = true, sent
	return nil
}

// checkStuck fails the world if a message that now waits never can be met.
func (g *group) checkStuck(rank int, k *call) error {
	if !k.isMessage() {
		return nil
	}
	if err := g.stuck(rank); err != nil {
		g.w.fail(failure{-1, err})
		return errWorldFailed
	}
	g.stops(rank, k)
	return nil
}

// message runs one side of a message from its first check to its record.
func (c *local) message(ctx context.Context, k *call, run func() error) (err error) {
	err = ErrPanicked
	defer func() { c.end(k, err) }()
	k.ctx = ctx
	w := c.g.w
	why := c.prepare(ctx, k)
	if why == nil && k.invalid == nil {
		why = run()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case why != nil:
		return c.error(k, c.g.interrupted(c.rank, k, why, []int{k.peerIn(c.g.ranks)}))
	case k.invalid != nil:
		return c.error(k, c.g.admit(c.rank, k))
	}
	c.g.busy[c.rank] = nil
	return nil
}
