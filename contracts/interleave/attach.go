package interleave

import (
	"context"
	"encoding/binary"
	"hash/fnv"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Attach makes the run of the parts go by a schedule; what is attached later
// decorates what is scheduled, and is scheduled with it. The scheduler serves one
// run.
func Attach(p *launch.Parts, schedule Schedule) *Scheduler {
	s := &Scheduler{schedule: schedule, choose: schedule.chooser(), memory: map[kernels.Buffer]*shadow{}}
	bare, world := p.Backend, p.World
	p.Backend = func(rank int) (kernels.Backend, error) {
		be, err := bare(rank)
		if err != nil {
			return nil, err
		}
		for len(s.backends) <= rank {
			s.backends = append(s.backends, nil)
		}
		s.backends[rank] = be
		return &backend{be, s, rank}, nil
	}
	p.World = func(ctx context.Context, size int, be func(int) kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
		ends, err := world.Open(ctx, size, be, o)
		if err != nil {
			return nil, err
		}
		ranks := ends[0].Ranks()
		s.root = newGroup(ranks)
		for i, c := range ends {
			ends[i] = s.decorate(c, s.root)
		}
		return ends, nil
	}
	p.Turns = s
	released := p.Released
	p.Released = func(rank int, x kernels.Tensor) {
		if released != nil {
			released(rank, x)
		}
		s.Released(rank, x)
	}
	return s
}

// Order is who had each turn, by the goroutines' numbers: first the ranks, then
// others as they were started.
func (s *Scheduler) Order() []uint16 { return s.order }

// Hazards are those of the run, each kind of meeting of two uses once.
func (s *Scheduler) Hazards() []Hazard { return s.hazards.list }

// Note adds to a run's history how it was scheduled and what was seen.
func (s *Scheduler) Note(h *trace.History) {
	sum := s.digest()
	for rank := range s.ranks {
		a := &s.ranks[rank]
		h.Ranks[rank] = append(h.Ranks[rank], trace.Event{Kind: trace.KindTurns, Rank: rank, Step: -1,
			What: string(s.schedule.Policy), Seq: s.schedule.Seed, Count: a.turns, Index: a.uses, Digest: &sum})
	}
	for _, z := range s.hazards.list {
		h.Ranks[z.Rank] = append(h.Ranks[z.Rank], trace.Event{Kind: trace.KindHazard, Rank: z.Rank, Step: z.Step, What: z.What, Unit: z.Unit, Text: z.Text})
	}
}

// Failed notes what ended a rank, unless that is a deadlock that was noted.
func (s *Scheduler) Failed(rank int, err error) {
	if !s.hazards.seen[trace.Deadlock] {
		s.hazards.add(Hazard{What: trace.Failed, Rank: rank, Step: s.ranks[rank].step, Text: err.Error()}, trace.Failed)
	}
}

// digest is of the order of turns.
func (s *Scheduler) digest() kernels.Digest {
	h := fnv.New64a()
	var b [2]byte
	for _, id := range s.order {
		binary.LittleEndian.PutUint16(b[:], id)
		h.Write(b[:])
	}
	return kernels.Digest{A: h.Sum64(), B: uint64(len(s.order))}
}
