package fault

import (
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Every stands for all ranks where one is asked for, as any negative number does.
const Every = -1

// among says whether r is the rank that is meant.
func among(rank, r int) bool { return rank < 0 || r == rank }

// decorate adds a decorator to a hook, outside of those that it has.
func decorate[T any](hook *func(rank int, v T) T, f func(rank int, v T) T) {
	before := *hook
	*hook = func(rank int, v T) T {
		if before != nil {
			v = before(rank, v)
		}
		return f(rank, v)
	}
}

// OnConfig changes what a rank believes the configuration to be.
func OnConfig(change func(rank int, c *spec.Config)) Fault {
	return func(p *launch.Parts) {
		decorate(&p.Config, func(rank int, c spec.Config) spec.Config {
			change(rank, &c)
			return c
		})
	}
}

// OnComm decorates every rank's communicators; the data-parallel group has two.
func OnComm(f func(rank int, group names.Axis, c comm.Communicator) comm.Communicator) Fault {
	return func(p *launch.Parts) {
		before := p.Comm
		p.Comm = func(rank int, group names.Axis, c comm.Communicator) comm.Communicator {
			if before != nil {
				c = before(rank, group, c)
			}
			return f(rank, group, c)
		}
	}
}

// OnBackend decorates one rank's backend (all ranks', if rank is negative).
func OnBackend(rank int, f func(be kernels.Backend) kernels.Backend) Fault {
	return func(p *launch.Parts) {
		onBackends(p, rank, func(_ int, be kernels.Backend) kernels.Backend { return f(be) })
	}
}

func onBackends(p *launch.Parts, rank int, f func(r int, be kernels.Backend) kernels.Backend) {
	before := p.Backend
	p.Backend = func(r int) (kernels.Backend, error) {
		be, err := before(r)
		if err != nil || !among(rank, r) {
			return be, err
		}
		return f(r, be), nil
	}
}

// watch remembers every rank's backend, for faults elsewhere that touch elements.
// Backends are made before all else.
func watch(p *launch.Parts) *PerRank[kernels.Backend] {
	ranks := &PerRank[kernels.Backend]{}
	onBackends(p, Every, func(rank int, be kernels.Backend) kernels.Backend {
		*ranks.At(rank) = be
		return be
	})
	return ranks
}

// OnUpdater decorates the owner of each of one rank's model parts (of all
// ranks', if rank is negative); be is that rank's backend.
func OnUpdater(rank int, f func(be kernels.Backend, u parallel.Updater) parallel.Updater) Fault {
	return func(p *launch.Parts) {
		ranks := watch(p)
		decorate(&p.Updater, func(r int, u parallel.Updater) parallel.Updater {
			if !among(rank, r) {
				return u
			}
			return f(*ranks.At(r), u)
		})
	}
}

// OnBuckets changes how ranks cut their state.
func OnBuckets(f func(rank int, buckets []parallel.Bucket) []parallel.Bucket) Fault {
	return func(p *launch.Parts) { decorate(&p.Buckets, f) }
}

// OnCounter changes how many optimizer steps a rank believes to have taken.
func OnCounter(f func(rank, taken int) int) Fault {
	return func(p *launch.Parts) { decorate(&p.Counter, f) }
}

// OnSchedule changes the pipeline schedule on all ranks.
func OnSchedule(f func(schedule.Schedule) schedule.Schedule) Fault {
	return func(p *launch.Parts) {
		decorate(&p.Schedule, func(_ int, s schedule.Schedule) schedule.Schedule { return f(s) })
	}
}

// Update is one call of a rank's optimizer, not yet done.
type Update struct {
	Rank     int
	Backend  kernels.Backend
	W, G     kernels.Tensor
	Moments  []kernels.Tensor
	Decays   bool
	Step     optim.Step
	original optim.Optimizer
}

// Do does the update.
func (u *Update) Do() { u.original.Update(u.Backend, u.W, u.G, u.Moments, u.Decays, u.Step) }

// OnUpdate does do in place of every rank's updates.
func OnUpdate(do func(*Update)) Fault {
	return func(p *launch.Parts) {
		decorate(&p.Optimizer, func(rank int, o optim.Optimizer) optim.Optimizer { return &updating{o, rank, do} })
	}
}

// updating is an optimizer whose updates are replaced.
type updating struct {
	optim.Optimizer
	rank int
	do   func(*Update)
}

func (o *updating) Update(be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step) {
	o.do(&Update{o.rank, be, w, g, moments, decays, s, o.Optimizer})
}

// Share is a rank's question for the sequences of a logical worker in a step.
type Share struct {
	Rank, Step, Worker, Workers int
	original                    train.Source
}

// Do gives the sequences and their ids.
func (s Share) Do() ([]data.Sequence, []int64) {
	return s.original.Sequences(s.Step, s.Worker, s.Workers)
}

// OnShare answers every rank's questions for sequences by do.
func OnShare(do func(Share) ([]data.Sequence, []int64)) Fault {
	return func(p *launch.Parts) {
		decorate(&p.Source, func(rank int, s train.Source) train.Source { return &sharing{s, rank, do} })
	}
}

// sharing is a source whose answers are replaced.
type sharing struct {
	train.Source
	rank int
	do   func(Share) ([]data.Sequence, []int64)
}

func (s *sharing) Sequences(step, worker, workers int) ([]data.Sequence, []int64) {
	return s.do(Share{s.rank, step, worker, workers, s.Source})
}
