package comm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/waits"
)

// Watch counts the goroutines of a run that go on: those that its ranks began
// with, and their queues. The last one to stop sees that nobody can ever go on, at
// once and without a clock: then the world fails, and says who did not come to
// what. It costs a count where a goroutine stops, and one where it is woken.
//
// It knows goroutines by the contexts of Enter. A goroutine that it does not know
// and that calls an operation of the world ends it: then deadlines are what is left.
type Watch struct {
	mu      sync.Mutex
	running int // goroutines that go on
	off     bool
	actors  []*actor // of ranks that have not ended, and of their queues
	ended   []int
	world   *world // that it tells; nil before NewLocal
}

// actor is a goroutine that a Watch knows. The watch's mutex guards what it waits
// for; the world's too, where that is an operation.
type actor struct {
	watch   *Watch
	rank    int // in the world
	queue   *Queue
	own     *Queue // of a rank's first goroutine: what it waits for
	stopped bool

	// The operation that it waits in, nil for none.
	in     *group
	member int // its rank there
	call   *call
	ctx    context.Context // of the operation: who reads the label there
}

// actorKey is the context key of a goroutine's actor.
type actorKey struct{}

// actorOf is the actor of a context, nil where nobody watches.
func actorOf(ctx context.Context) *actor {
	a, _ := ctx.Value(actorKey{}).(*actor)
	return a
}

// NewWatch makes the watch of a world of size ranks, all of which are about to run:
// each calls Enter first and Leave at its end.
func NewWatch(size int) *Watch { return &Watch{running: size} }

// Enter is the context of a rank's first goroutine, and of no other.
func (w *Watch) Enter(ctx context.Context, rank int) context.Context {
	a := &actor{watch: w, rank: rank}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actors = append(w.actors, a)
	return context.WithValue(ctx, actorKey{}, a)
}

// Leave says that a rank's first goroutine, which ctx is of, goes no further.
func (w *Watch) Leave(ctx context.Context) {
	if a := actorOf(ctx); a != nil {
		w.mu.Lock()
		w.ended = append(w.ended, a.rank)
		w.mu.Unlock()
		a.end()
	}
}

// start is a new goroutine of the rank of a context's goroutine, which goes on: the
// rank's queue. nil where nobody watches.
func start(ctx context.Context, q *Queue) *actor {
	by := actorOf(ctx)
	if by == nil {
		return nil
	}
	a := &actor{watch: by.watch, rank: by.rank, queue: q}
	w := by.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running++
	w.actors = append(w.actors, a)
	return a
}

// end says that a goroutine goes no further.
func (a *actor) end() {
	w := a.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actors = slices.DeleteFunc(w.actors, func(o *actor) bool { return o == a })
	w.less()
}

// less counts a goroutine that stops. The caller holds mu.
func (w *Watch) less() {
	if w.running--; w.running == 0 && !w.off && len(w.actors) > 0 {
		go w.check() // it takes other locks than the caller may hold
	}
}

// pause says that a goroutine stops, for a queue unless that is nil.
func (a *actor) pause(q *Queue) {
	w := a.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.stopped {
		w.off = true // two goroutines have one context
		return
	}
	a.stopped, a.own = true, q
	w.less()
}

// resume says that a goroutine has been given what it waited for: whoever gives it
// does so, so that the count never misses one that is about to go on.
func (a *actor) resume() {
	w := a.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if !a.stopped {
		return
	}
	a.stopped, a.call, a.own = false, nil, nil
	w.running++
}

// stops says that a rank waits in an operation until others come, or lets them be
// woken without a watch. The caller holds the world's mutex.
func (g *group) stops(rank int, k *call) {
	w := g.w.opts.Watch
	if w == nil || g.w.first != nil {
		return
	}
	a := actorOf(k.ctx)
	if a == nil || a.watch != w {
		w.mu.Lock()
		w.off = true
		w.mu.Unlock()
		return
	}
	k.actor = a
	if !a.stopped {
		a.in, a.member, a.call, a.ctx = g, rank, k, k.ctx
	}
	a.pause(nil)
}

// goesOn says that those whom a rank waited for have come. The caller holds the
// world's mutex.
func (k *call) goesOn() {
	if k.actor != nil {
		k.actor.resume()
		k.actor = nil
	}
}

// check fails the world if no goroutine goes on. It holds true for ever then, but
// for a deadline or a context that ends: each makes the world fail by itself.
func (w *Watch) check() {
	w.mu.Lock()
	world := w.world
	w.mu.Unlock()
	if world == nil {
		return
	}
	world.mu.Lock()
	w.mu.Lock()
	var queues []*Queue
	if w.running == 0 && !w.off && world.first == nil {
		if f, found := w.deadlock(); found {
			world.fail(f)
			for _, a := range w.actors {
				if a.own != nil {
					queues = append(queues, a.own)
				}
			}
		}
	}
	w.mu.Unlock()
	f := world.first
	world.mu.Unlock()
	for _, q := range queues {
		q.give(f.err)
	}
}

// deadlock is why no goroutine goes on. The caller holds both mutexes.
func (w *Watch) deadlock() (f failure, found bool) {
	for _, a := range w.actors { // who is at the wrong place explains who waits
		if a.call == nil || a.in.meeting == nil {
			continue
		}
		if m := a.in.meeting; m.roll.fitting(&a.call.header) != m.arrived {
			return m.roll.mismatch(a.in.ranks), true
		}
	}
	d := waits.Find(w.ranks())
	if d == nil {
		return failure{}, false
	}
	f = failure{-1, fmt.Errorf("%w: %s", ErrDeadlock, d)}
	if absent := d.Absent(); len(absent) == 1 {
		f.peer = absent[0]
	}
	return f, true
}

// ranks is what the ranks of the world do. The caller holds both mutexes.
func (w *Watch) ranks() []waits.Rank {
	byID := map[int]*waits.Rank{}
	at := func(id int) *waits.Rank {
		if byID[id] == nil {
			byID[id] = &waits.Rank{ID: id}
		}
		return byID[id]
	}
	for _, id := range w.ended {
		at(id).Ended = true
	}
	for _, a := range w.actors {
		r := at(a.rank)
		switch {
		case !a.stopped:
			r.Busy = true
		case a.call != nil:
			m, missing := a.meeting()
			r.Waits = append(r.Waits, waits.Wait{Meeting: m, For: missing, Queue: a.queue != nil})
		case a.own != nil:
			r.Waits = append(r.Waits, waits.Wait{})
		}
	}
	out := make([]waits.Rank, 0, len(byID))
	for _, r := range byID {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b waits.Rank) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// meeting is the operation that a goroutine waits in, and who has not come.
func (a *actor) meeting() (*waits.Meeting, []int) {
	g, k, l := a.in, a.call, LabelOf(a.ctx)
	m := &waits.Meeting{Name: k.op, Group: l.Group, Beside: l.Overlap, Ranks: g.ranks, Seq: k.seq, Step: l.Step, From: -1, To: -1}
	if l.Tensor != "" {
		m.Name += " of " + l.Tensor
	}
	if k.count > 0 && k.op != names.OpAllGatherBytes {
		m.Size = fmt.Sprintf("%d elements", k.count)
	}
	if !k.isMessage() {
		if g.meeting == nil {
			return m, nil
		}
		return m, g.meeting.roll.missing(g.ranks)
	}
	me, peer := g.ranks[a.member], k.peerIn(g.ranks)
	if m.From, m.To = me, peer; k.op == names.OpRecv {
		m.From, m.To = peer, me
	}
	return m, []int{peer}
}
