//go:build unix

package procs

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Join makes parts those of the ranks that are in this process, of worlds that it has
// with the other agents, by one of Transports, or MPI. The driver hears of progress, and says when the run ends.
func (j *Job) Join(p *launch.Parts, transport string) {
	j.transport = transport
	p.Ranks = func(size int) []int { return Deal(j.a.Agents, size)[j.a.Agent] }
	p.Origin = trace.Origin{Host: j.a.at.host, Process: j.a.Agent + 1}
	p.World = j.world
	p.Progress = func(x train.Progress) { _ = j.a.tell(note{Kind: noteProgress, Task: j.id, Progress: sayProgress(x)}) }
	if p.Checkpoints.Stop != nil {
		p.Checkpoints.Stop = j.stop
	}
}

// Stream has the driver get what ranks record as soon as a step is done. It is for
// parts of one run: what the ranks of several record is told at the end.
func (j *Job) Stream(p *launch.Parts) {
	keep := p.Keep
	p.Logs = func(l *trace.Log) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.streams[l.Header.Rank] = &stream{log: l, step: -1}
	}
	p.Keep = func(e trace.Event) bool {
		j.mu.Lock()
		s := j.streams[e.Rank]
		j.mu.Unlock()
		if s != nil && s.next(e.Step) {
			if events := s.log.Take(); len(events) > 0 {
				_ = j.record(s.log.Header, events) // who does not get it is gone
			}
		}
		return keep == nil || keep(e)
	}
}

// stream is what a rank records, step after step.
type stream struct {
	log  *trace.Log
	mu   sync.Mutex
	step int
}

// next reports whether a step follows one that is done.
func (s *stream) next(step int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step <= s.step {
		return false
	}
	s.step = step
	return true
}

// record tells the driver of events.
func (j *Job) record(h trace.Header, events []trace.Event) error {
	l := &trace.Log{Header: h}
	l.Add(events)
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		return fmt.Errorf("what rank %d recorded: %w", h.Rank, err)
	}
	if err := j.a.tell(note{Kind: noteLog, Task: j.id, Bytes: int64(b.Len())}, b.Bytes()); err != nil {
		return fmt.Errorf("what rank %d recorded: %w", h.Rank, err)
	}
	return nil
}

// rest tells the driver what is left of a history.
func (j *Job) rest(h *trace.History) error {
	if h == nil {
		return nil
	}
	for rank, events := range h.Ranks {
		if err := j.record(h.Of(rank), events); err != nil {
			return err
		}
	}
	return nil
}

// world opens this process's ends of a world: a comm.World.
func (j *Job) world(ctx context.Context, size int, backend func(rank int) kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
	j.mu.Lock()
	j.worlds++
	number := j.worlds
	j.mu.Unlock()
	ends, mine := make([]comm.Communicator, size), Deal(j.a.Agents, size)[j.a.Agent]
	if len(mine) == 0 {
		return ends, nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(j.meeting, func() { stop(context.Cause(j.meeting)) })()
	joined, err := j.join(ctx, size, number, mine, backend, o)
	if err != nil {
		if j.meeting.Err() != nil { // says more than who has not come
			err = context.Cause(j.meeting)
		}
		return nil, fmt.Errorf("world of %d ranks: %w", size, err)
	}
	for i, r := range mine {
		ends[r] = joined[i]
	}
	return ends, nil
}

// join joins ranks of this process, all or none.
func (j *Job) join(ctx context.Context, size, number int, mine []int, backend func(rank int) kernels.Backend, o comm.Options) (ends []comm.Communicator, err error) {
	configs, err := engine.Listen(len(mine), j.ways)
	if err != nil {
		return nil, err
	}
	addr := configs[0].Addr()
	if mine[0] == 0 {
		err = j.a.tell(note{Kind: noteOpen, Task: j.id, World: number, Addr: addr})
	} else {
		addr, err = j.where(ctx, number)
	}
	if err != nil {
		engine.Close(configs)
		return nil, err
	}
	for i := range configs {
		c := &configs[i]
		c.Rank, c.Size, c.Coordinator = mine[i], size, addr
		c.Run, c.Identity, c.Token = fmt.Sprintf("%s, task %d, world %d", j.a.crew.Run, j.id, number), j.a.identity, j.a.Token
		c.Checksum, c.Rendezvous, c.Silence = j.a.crew.sums(), j.a.Join, j.a.Silence
		c.Linked, c.Options = j.linked, o
	}
	return engine.JoinAll(ctx, configs, backend)
}

// where waits until rank 0 of a world listens, and says where.
func (j *Job) where(ctx context.Context, world int) (string, error) {
	ctx, stop := context.WithTimeoutCause(ctx, j.a.Join, fmt.Errorf("rank 0 did not come within %v", j.a.Join))
	defer stop()
	wake := context.AfterFunc(ctx, j.wake)
	defer wake()
	j.mu.Lock()
	defer j.mu.Unlock()
	for ctx.Err() == nil {
		if addr, ok := j.addrs[world]; ok {
			return addr, nil
		}
		j.change.Wait()
	}
	return "", context.Cause(ctx)
}
