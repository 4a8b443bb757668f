package suite

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/kern"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// surveyName is the name of the case that has what devices do besides kernels.
const surveyName = "devices"

// devices is the case of all devices of all processes.
func devices(o suite.Options) suite.Case {
	s := kern.DeviceSpec{Seed: cmp.Or(o.Seed, 1), Elements: 1<<12 + 1, Depth: 64, Repeats: 1, Bytes: 1 << 20}
	switch {
	case o.Level == 2:
		s.Elements, s.Repeats, s.Bytes = 1<<18+1, 2, 16<<20
	case o.Level > 2:
		s.Elements, s.Depth, s.Repeats, s.Bytes, s.Percent = 1<<18+1, 256, 8, 256<<20, 90
	}
	d := surveying{s, o.Places()}
	return suite.Case{Name: surveyName, Clauses: []string{movedClause, wholeClause}, Runs: map[contract.Role]suite.Run{
		contract.Test: {Key: fmt.Sprintf("drill of devices %+v", d), Alone: true, Do: d.run}}}
}

// surveying makes the history of a drill of devices.
type surveying struct {
	kern.DeviceSpec
	world int
}

// memoryTime is how long the memory of a device may take.
const memoryTime = 2 * time.Minute

// run drills the devices of the ranks that are in this process, each by itself first.
func (s surveying) run(ctx context.Context, env suite.Env) (*trace.History, error) {
	if d := env.Parts.Deadline; d > 0 && s.Percent > 0 {
		env.Parts.Deadline = d + 2*memoryTime // devices have not all as much memory
	}
	return places(env, s.world, "drill of devices", s.DeviceSpec, func(backends []kernels.Backend, logs map[int]*trace.Log) error {
		var one oneAtATime
		var group errgroup.Group
		for rank, log := range logs {
			group.Go(func() error {
				return guard.Do(func() error { return s.alone(ctx, backends[rank], log, &one) })
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		comms, err := env.Parts.Open(ctx, backends, comm.Options{Algorithm: names.Tree})
		if err != nil {
			return err
		}
		x := &exchange{surveying: s, decorate: env.Parts.Comm}
		var ranks errgroup.Group
		for _, c := range comms {
			ranks.Go(func() error {
				defer c.Close()
				rank := c.Rank()
				err := guard.Do(func() error { return x.rank(ctx, c, backends[rank], logs[rank]) })
				if err == nil {
					logs[rank].Record(trace.Event{Kind: trace.KindEnd})
				}
				return err
			})
		}
		return ranks.Wait()
	})
}

// alone is what a device does by itself.
func (s surveying) alone(ctx context.Context, be kernels.Backend, log *trace.Log, one *oneAtATime) error {
	e, err := s.parts(be)
	if err != nil {
		return err
	}
	log.Record(e)
	if l, ok := kernels.LocatedOf(be); ok {
		if e, err = s.each(l); err != nil {
			return err
		}
		log.Record(e)
	}
	defer one.take(kernels.DeviceOf(be))()
	if e, err = s.memory(ctx, be); err != nil {
		return err
	}
	log.Record(e)
	return nil
}

// oneAtATime has ranks that share a device take its memory in turns.
type oneAtATime struct {
	mu sync.Mutex
	of map[string]*sync.Mutex
}

// take is the turn of somebody on a device, until release.
func (o *oneAtATime) take(device string) (release func()) {
	o.mu.Lock()
	if o.of == nil {
		o.of = map[string]*sync.Mutex{}
	}
	if o.of[device] == nil {
		o.of[device] = &sync.Mutex{}
	}
	turn := o.of[device]
	o.mu.Unlock()
	turn.Lock()
	return turn.Unlock
}

// tile is the rows and columns of the product that each part of a device computes, as
// large as any backend cuts one at once.
const tile = 128

// parts has a device compute a product of equal tiles, several for each part of it, and
// compares each.
func (s surveying) parts(be kernels.Backend) (trace.Event, error) {
	e := trace.Event{Kind: trace.KindDevice, What: trace.Parts}
	n := 1
	if l, ok := kernels.LocatedOf(be); ok {
		n = l.Parts()
	}
	rows := 1
	for rows*rows < 4*n {
		rows++
	}
	host := newHost()
	a, b, want := host.vector(s.Seed, 1, tile*s.Depth).As(tile, s.Depth), host.vector(s.Seed, 2, tile*s.Depth).As(tile, s.Depth), host.zeros(tile*tile).As(tile, tile)
	host.MatMulNT(want, a, b, nil)
	m := memory{Backend: be}
	defer m.free()
	x, y, z := m.alloc(rows*tile*s.Depth).As(rows*tile, s.Depth), m.alloc(rows*tile*s.Depth).As(rows*tile, s.Depth), m.alloc(rows*rows*tile*tile).As(rows*tile, rows*tile)
	if m.err != nil {
		return e, m.err
	}
	for i := range rows {
		be.Write(x.RowRange(i*tile, (i+1)*tile), host.elements(a))
		be.Write(y.RowRange(i*tile, (i+1)*tile), host.elements(b))
	}
	for range s.Repeats {
		be.Fill(z, -1)
		be.MatMulNT(z, x, y, nil)
		for i := range rows * rows {
			t := z.RowRange(i/rows*tile, (i/rows+1)*tile).ColRange(i%rows*tile, (i%rows+1)*tile)
			got, err := host.same(be, t, want)
			if err != nil {
				return e, err
			}
			if e.Count += got.Count; got.Text != "" {
				e.Index, e.Got, e.Want = got.Index, got.Got, got.Want
				e.Text = fmt.Sprintf("tile %d of the %d equal ones of a product, for %d parts of the device: %s", i, rows*rows, n, got.Text)
				return e, nil
			}
		}
	}
	return e, be.Sync()
}

// exchange is what devices do with each other.
type exchange struct {
	surveying
	decorate func(rank int, group names.Axis, c comm.Communicator) comm.Communicator

	mu  sync.Mutex
	all *kernels.Tensor // the sum over all ranks
}

// decorated is a communicator as faults change it.
func (x *exchange) decorated(rank int, c comm.Communicator) comm.Communicator {
	if x.decorate == nil || c == nil {
		return c
	}
	return x.decorate(rank, names.World, c)
}

// rank is what one rank does with each other one, in rounds, and then with all.
func (x *exchange) rank(ctx context.Context, c comm.Communicator, be kernels.Backend, log *trace.Log) error {
	me, host := c.Rank(), newHost()
	m := memory{Backend: be}
	defer m.free()
	own, other := m.alloc(x.Elements), m.alloc(x.Elements)
	if m.err != nil {
		return m.err
	}
	mine := host.vector(x.Seed, me+3, x.Elements)
	be.Write(own, host.elements(mine))
	for round := range rounds(x.world) {
		with := partner(round, me, x.world)
		color := -1
		if with >= 0 {
			color = min(me, with)
		}
		pair, err := c.Split(ctx, color, me)
		if err != nil {
			return err
		}
		if with < 0 {
			continue
		}
		theirs := host.vector(x.Seed, with+3, x.Elements)
		err = x.pair(ctx, x.decorated(me, pair), be, host, log, with, own, other, mine, theirs)
		if err = cmp.Or(err, pair.Close()); err != nil {
			return err
		}
	}
	be.Copy(other, own)
	if err := x.decorated(me, c).AllReduce(ctx, other, kernels.Sum); err != nil {
		return err
	}
	e, err := host.same(be, other, x.sum(host))
	e.What = trace.All
	log.Record(e)
	return err
}

// pair is what two ranks do: each copies to the other, and both sum.
func (x *exchange) pair(ctx context.Context, c comm.Communicator, be kernels.Backend, host *host, log *trace.Log, with int, own, other, mine, theirs kernels.Tensor) error {
	second := c.Rank() // of the two; the first sends first
	for turn := range 2 {
		if turn == second {
			if err := c.Send(ctx, own, 1-second); err != nil {
				return err
			}
			continue
		}
		be.Fill(other, -1)
		if err := c.Recv(ctx, other, 1-second); err != nil {
			return err
		}
		e, err := host.same(be, other, theirs)
		if err != nil {
			return err
		}
		e.What, e.Peer = trace.Copied, with
		log.Record(e)
	}
	be.Copy(other, own)
	if err := c.AllReduce(ctx, other, kernels.Sum); err != nil {
		return err
	}
	both := []kernels.Tensor{mine, theirs}
	if second == 1 {
		both[0], both[1] = theirs, mine
	}
	want := host.zeros(x.Elements)
	host.Reduce([]kernels.Tensor{want}, both, kernels.Sum)
	e, err := host.same(be, other, want)
	e.What, e.Peer = trace.Summed, with
	log.Record(e)
	return err
}

// sum is that of the vectors of all ranks, made once for all of this process.
func (x *exchange) sum(h *host) kernels.Tensor {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all == nil {
		var vectors []kernels.Tensor
		for r := range x.world {
			vectors = append(vectors, h.vector(x.Seed, r+3, x.Elements))
		}
		sum := h.zeros(x.Elements)
		h.Reduce([]kernels.Tensor{sum}, vectors, kernels.Sum)
		x.all = &sum
	}
	return *x.all
}

// rounds is in how many of them each of n ranks is with each other one.
func rounds(n int) int {
	if n < 2 {
		return 0
	}
	return n + n%2 - 1
}

// partner is with whom a rank of n is in a round; -1 for nobody.
func partner(round, rank, n int) int {
	m := rounds(n)
	with := m // who is added where n is odd, or the last
	switch {
	case rank < m:
		if other := ((2*round-rank)%m + m) % m; other != rank {
			with = other
		}
	default:
		with = round
	}
	if with >= n {
		return -1
	}
	return with
}
