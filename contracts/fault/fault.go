// Package fault breaks training runs from outside: every fault is a change of
// launch.Parts that decorates a communicator, backend, optimizer, source or a
// rank's configuration. Decorators embed what they decorate, so whatever they
// do not break passes through. Production code knows none of them.
//
// Ranks are world ranks, steps count optimizer steps from 0, units are those of
// model.Layout ("embed", "block.0", "final", "head").
package fault

import (
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Fault changes the parts that a run is made of.
type Fault func(*launch.Parts)

// All applies several faults in order; later ones decorate earlier ones.
func All(faults ...Fault) Fault {
	return func(p *launch.Parts) {
		for _, f := range faults {
			f(p)
		}
	}
}

// onComm decorates every rank's data-parallel communicators and its world.
func onComm(p *launch.Parts, decorate func(rank int, c comm.Communicator) comm.Communicator) {
	before := p.Comm
	p.Comm = func(rank int, group names.Axis, c comm.Communicator) comm.Communicator {
		if before != nil {
			c = before(rank, group, c)
		}
		if group != names.DP && group != names.World {
			return c
		}
		return decorate(rank, c)
	}
}

// onBackend decorates every rank's backend.
func onBackend(p *launch.Parts, decorate func(rank int, be kernels.Backend) kernels.Backend) {
	before := p.Backend
	p.Backend = func(rank int) (kernels.Backend, error) {
		be, err := before(rank)
		if err != nil {
			return nil, err
		}
		return decorate(rank, be), nil
	}
}

// onOptimizer decorates every rank's optimizer.
func onOptimizer(p *launch.Parts, decorate func(rank int, o optim.Optimizer) optim.Optimizer) {
	before := p.Optimizer
	p.Optimizer = func(rank int, o optim.Optimizer) optim.Optimizer {
		if before != nil {
			o = before(rank, o)
		}
		return decorate(rank, o)
	}
}

// onSource decorates every rank's data.
func onSource(p *launch.Parts, decorate func(rank int, s train.Source) train.Source) {
	before := p.Source
	p.Source = func(rank int, s train.Source) train.Source {
		if before != nil {
			s = before(rank, s)
		}
		return decorate(rank, s)
	}
}

// Config changes what a rank believes the configuration to be.
func Config(change func(rank int, c *spec.Config)) Fault {
	return func(p *launch.Parts) {
		before := p.Config
		p.Config = func(rank int, c spec.Config) spec.Config {
			if before != nil {
				c = before(rank, c)
			}
			change(rank, &c)
			return c
		}
	}
}

// Seed gives every rank a seed of its own: seed + rank.
func Seed() Fault {
	return Config(func(rank int, c *spec.Config) { c.Seed += uint64(rank) })
}

// FixedSeed makes every rank ignore the seed it was given.
func FixedSeed(seed uint64) Fault {
	return Config(func(_ int, c *spec.Config) { c.Seed = seed })
}

// LearningRate multiplies one rank's learning rate (of all ranks, if rank is
// negative).
func LearningRate(rank int, factor float64) Fault {
	return Config(func(r int, c *spec.Config) {
		if rank < 0 || r == rank {
			c.Optimizer.LR *= factor
		}
	})
}

// Schedule advances the learning-rate schedule times as fast on all ranks.
func Schedule(times int) Fault {
	return Config(func(_ int, c *spec.Config) {
		c.Optimizer.Warmup /= times
		c.Optimizer.Horizon /= times
	})
}

// backends remembers the backend of each rank, for communicator faults that
// touch elements.
type backends struct {
	mu     sync.Mutex
	byRank map[int]kernels.Backend
}

func watch(p *launch.Parts) *backends {
	b := &backends{byRank: map[int]kernels.Backend{}}
	onBackend(p, func(rank int, be kernels.Backend) kernels.Backend {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.byRank[rank] = be
		return be
	})
	return b
}

func (b *backends) of(rank int) kernels.Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byRank[rank]
}
