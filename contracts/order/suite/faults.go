package suite

import (
	"context"
	"math"
	"sync"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// overlapped selects the calls of one operation that work beside the computation.
func overlapped(op string) func(*fault.Call) bool {
	return func(c *fault.Call) bool { return c.Op == op && c.Label.Overlap }
}

// published selects the broadcasts of updated weights.
func published(c *fault.Call) bool {
	return c.Op == names.OpBroadcast && c.Label.Group == names.DP && c.Label.Step >= 0 && !c.Label.Overlap
}

// unawaited does the calls that where selects in one group beside the rank, in
// their order, and lets the rank go on as if they were done.
func unawaited(group names.Axis, where func(*fault.Call) bool) fault.Fault {
	return func(p *launch.Parts) {
		ways := apart(p, group)
		fault.OnCalls(where, func(c *fault.Call) error {
			ways.At(c.Rank).later(c, 0)
			return nil
		})(p)
	}
}

// unawaitedMessages does one side of all messages between stages beside the rank.
func unawaitedMessages(op string) fault.Fault {
	return func(p *launch.Parts) {
		ways := apart(p, names.PP)
		messages := func(c *fault.Call) bool { return c.Group == names.PP && (c.Op == names.OpSend || c.Op == names.OpRecv) }
		fault.OnCalls(messages, func(c *fault.Call) error {
			sender := c.Peer
			if c.Op == names.OpSend {
				sender = c.Comm.Rank()
			}
			w := ways.At(c.Rank)
			if c.Op == op {
				w.later(c, sender)
				return nil
			}
			return c.On(w.comms[sender])
		})(p)
	}
}

// beside are a rank's copies of a group, one per member, for calls that it does
// not wait for: each copy has one call at a time.
type beside struct {
	comms  []comm.Communicator
	queues []*comm.Queue
}

// apart makes the copies as the ranks decorate their communicators, which all
// ranks of a group do together. Without copies a call panics, which ends the run.
func apart(p *launch.Parts, group names.Axis) *fault.PerRank[beside] {
	turns, ranks := p.Turns, &fault.PerRank[beside]{}
	fault.OnComm(func(rank int, g names.Axis, c comm.Communicator) comm.Communicator {
		if w := ranks.At(rank); g == group && w.comms == nil {
			for range c.Size() {
				copied, _ := c.Split(context.Background(), 0, c.Rank())
				w.comms = append(w.comms, copied)
				w.queues = append(w.queues, comm.NewQueueIn(context.Background(), turns))
			}
		}
		return c
	})(p)
	return ranks
}

// later does a call on a copy, and nobody waits for it.
func (b *beside) later(c *fault.Call, way int) {
	c.Later()
	b.queues[way].Submit(func(context.Context) error { return c.On(b.comms[way]) })
}

// beforeFinish calls f with the gradients of one rank before it waits for their
// reduction.
func beforeFinish(rank int, f func(be kernels.Backend, g kernels.Tensor)) fault.Fault {
	return fault.OnUpdater(rank, func(be kernels.Backend, u parallel.Updater) parallel.Updater { return &early{u, be, f} })
}

type early struct {
	parallel.Updater
	be kernels.Backend
	f  func(be kernels.Backend, g kernels.Tensor)
}

func (e *early) Finish(ctx context.Context) error {
	for _, s := range e.Shards() {
		e.f(e.be, s.G)
	}
	return e.Updater.Finish(ctx)
}

// givenBack gives one rank's n-th product back as soon as it is computed.
func givenBack(rank, n int) fault.Fault {
	return func(p *launch.Parts) {
		released := p.Released
		fault.AfterProduct(rank, n, func(_ kernels.Backend, c, _ kernels.Tensor) { released(rank, c) })(p)
	}
}

// gatheredAndGivenBack gives the weights of a unit back, on one rank, when they
// have been gathered ahead, before their use.
func gatheredAndGivenBack(rank int, unit string) fault.Fault {
	return func(p *launch.Parts) {
		released := p.Released
		fault.OnCalls(fault.Calls(names.OpAllGather, unit), func(c *fault.Call) error {
			err := c.Do()
			if err == nil && c.Rank == rank && c.Label.Overlap {
				released(rank, c.X)
			}
			return err
		})(p)
	}
}

// asTheyCome adds what ranks reduce in the order in which they come.
func asTheyCome() fault.Fault {
	return func(p *launch.Parts) {
		var mu sync.Mutex
		come := map[comm.Label]int{}
		fault.OnCalls(overlapped(names.OpAllReduce), func(c *fault.Call) error {
			mu.Lock()
			place := come[c.Label]
			come[c.Label]++
			mu.Unlock()
			return c.Within(0, place)
		})(p)
	}
}

// afterTheLoss keeps one rank's reductions beside the computation until it has
// reduced the loss, for which its peers wait with theirs.
func afterTheLoss(rank int) fault.Fault {
	return func(p *launch.Parts) {
		var kept []*fault.Call // of one rank's goroutines, one after another
		var mu sync.Mutex
		reductions := func(c *fault.Call) bool { return c.Rank == rank && c.Op == names.OpAllReduce && c.OfReplicas() }
		fault.OnCalls(reductions, func(c *fault.Call) error {
			if c.Label.Overlap {
				c.Later()
				mu.Lock()
				kept = append(kept, c)
				mu.Unlock()
				return nil
			}
			if err := c.Do(); err != nil || c.Label.Tensor != trace.Loss {
				return err
			}
			for _, k := range kept {
				if err := k.Do(); err != nil {
					return err
				}
			}
			kept = nil
			return nil
		})(p)
	}
}

// afterUpdate makes the first element of what which selects no number, after one
// rank's update of a step.
func afterUpdate(step, rank int, which func(*fault.Update) kernels.Tensor) fault.Fault {
	return fault.OnUpdate(func(u *fault.Update) {
		u.Do()
		if u.Rank == rank && u.Step.T == step {
			u.Backend.Fill(which(u).Range(0, 1), math.NaN())
		}
	})
}

// arrivesLost makes the first element of the updated weights that one rank gathers in a
// step no number.
func arrivesLost(step, rank int) fault.Fault {
	gathers := func(c *fault.Call) bool { return c.Op == names.OpAllGather && c.Label.Step == step && c.Rank == rank }
	return fault.OnCalls(gathers, func(c *fault.Call) error {
		err := c.Do()
		c.Backend.Fill(c.X.Range(0, 1), math.NaN())
		return err
	})
}
