//go:build unix

package procs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// Team is a driver with its agents.
type Team struct {
	seat     Seat // of all, but for the agent's number
	terms    *wire.Terms
	ln       net.Listener
	run      string // names this run, and no other
	children []*child

	mu       sync.Mutex
	stranger string // what the last one was refused for
	come     int
	all      chan struct{} // closed when all have come
	runs     map[int]*run
	links    map[string]bool // ways by which ranks have reached each other
	last     int             // number of the last task
	lost     *Lost           // why the team is one no longer
	broken   chan struct{}   // closed together with lost
	told     func(*Lost)
	released bool
}

// Start starts agents and returns when all have come. Where one does not, all are
// ended and the error names it.
func Start(ctx context.Context, o Options) (*Team, error) {
	if err := CheckAgents(o.Agents, o.Found == nil); err != nil {
		return nil, err
	}
	t := &Team{all: make(chan struct{}), broken: make(chan struct{}), told: o.Lost, runs: map[int]*run{}, links: map[string]bool{}}
	if err := t.open(ctx, &o); err != nil {
		return nil, err
	}
	t.terms = t.seat.terms(o.Identity, o.Agents)
	err := t.enlist(&o)
	if err == nil {
		go t.terms.Serve(t.ln, t.arrive, t.refuse)
		err = t.fill(ctx, &o)
	}
	if err != nil {
		t.kill()
		return nil, err
	}
	return t, nil
}

// open listens for agents: those of other hosts know where, and a secret; all others
// are told.
func (t *Team) open(ctx context.Context, o *Options) (err error) {
	token, id := make([]byte, 32), make([]byte, 6)
	rand.Read(token) // never fails
	rand.Read(id)
	t.run = fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(id))
	defer func() { t.seat.Leaves = t.leaves(o) }()
	if f := o.Found; f != nil && len(f.Places) > 0 {
		var at string
		if t.ln, at, err = f.open(ctx); err == nil {
			t.seat = f.seat(at)
			t.seat.Join, t.seat.Silence = within(o.Deadline, MaxJoin), within(o.Deadline, MaxSilence)
		}
		return err
	}
	if t.ln, err = loopback(); err != nil {
		return err
	}
	t.seat = Seat{Driver: t.ln.Addr().String(), Run: t.run, Token: token, Agents: o.Agents, Join: within(o.Deadline, MaxJoin), Silence: within(o.Deadline, MaxSilence)}
	return nil
}

// loopback listens on a port of the loopback interface that the system chooses.
func loopback() (net.Listener, error) { return either(net.Listen) }

// either is loopback of the one version of IP or the other: a host may lack either.
func either(listen func(network, address string) (net.Listener, error)) (net.Listener, error) {
	ln, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		if ln6, err6 := listen("tcp", "[::1]:0"); err6 == nil {
			return ln6, nil
		}
	}
	return ln, err
}

// terms are what driver and agents must agree on; the driver's number is that of the
// agents.
func (s *Seat) terms(identity string, self int) *wire.Terms {
	return &wire.Terms{Run: s.Run, Identity: identity, Token: s.Token, TLS: s.Network.TLS, Self: self, World: s.Agents + 1, Called: "agent", Beside: 1}
}

// fill starts the agents and waits for them.
func (t *Team) fill(ctx context.Context, o *Options) error {
	if o.Found != nil && !t.seat.Apart {
		gone, err := o.Found.announce(t.seat)
		if err != nil {
			return err
		}
		defer gone()
	}
	for _, c := range t.children {
		if c.cmd != nil {
			go func() {
				<-c.ended
				t.gone(c, errors.New(c.fate()))
			}()
		}
	}
	late := time.NewTimer(t.seat.Join)
	defer late.Stop()
	select {
	case <-t.all:
		return t.man(o.Shared)
	case <-t.broken:
		return t.Over()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return fmt.Errorf("%s did not come within %v%s", t.absent(), t.seat.Join, t.strange())
	}
}

// enlist starts the agents, unless a launcher has. All are known before the first is let
// in: those of a launcher may wait for that, and until then the system keeps them.
func (t *Team) enlist(o *Options) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range o.Agents {
		s := t.seat
		s.Agent = i
		c, err := &child{agent: i, ended: make(chan struct{})}, error(nil)
		if o.Found == nil || i == 0 {
			c, err = s.start(o)
		}
		if err != nil {
			return err
		}
		c.apart = t.seat.Apart
		t.children = append(t.children, c)
	}
	return nil
}

// absent names the agents that have not come.
func (t *Team) absent() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, c := range t.children {
		if c.ch == nil {
			out = append(out, c.String())
		}
	}
	return strings.Join(out, ", ")
}

// Over is why the team does no task any more; nil while it does.
func (t *Team) Over() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		return nil
	}
	return t.lost
}

// refuse is of a handshake that failed. Who is of this run is an agent, without which
// there is no team, unless all have come; of a stranger is said only what it was refused
// for, if an agent does not come.
func (t *Team) refuse(r wire.Refused) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := r.Hello.From; r.Ours && i >= 0 && i < t.seat.Agents {
		t.turnAway(&r.Hello, r.Err)
		return
	}
	t.stranger = fmt.Sprintf("; last refused: %v: %v", r.From, r.Err)
}

// turnAway notes that who says that it is an agent is not let in: if not all have come,
// one will not. The caller holds mu.
func (t *Team) turnAway(h *wire.Hello, why error) {
	if t.come < t.seat.Agents {
		c := child{agent: h.From, pid: h.Process, hello: *h, apart: t.seat.Apart}
		t.lose(c.lost(fmt.Errorf("was refused: %w", why)))
	}
}

// strange is what the last stranger was refused for.
func (t *Team) strange() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stranger
}

// lose ends the team, once. The caller holds mu.
func (t *Team) lose(why *Lost) {
	if t.lost == nil && !t.released {
		t.lost = why
		close(t.broken)
		if t.told != nil {
			t.told(why)
		}
	}
}

// arrive takes in an agent, and reads what it says until it ends.
func (t *Team) arrive(g *wire.Guest) {
	t.mu.Lock()
	i := g.Hello.From
	if why := t.unexpected(&g.Hello); why != nil {
		t.turnAway(&g.Hello, why)
		t.mu.Unlock()
		g.Refuse(why)
		return
	}
	c := t.children[i]
	if c.cmd == nil {
		c.pid = g.Hello.Process
	}
	if err := g.Welcome(); err != nil {
		t.mu.Unlock()
		g.Conn.Close()
		return
	}
	c.ch, c.hello = g.Channel, g.Hello
	go t.beat(c)
	if t.come++; t.come == t.seat.Agents {
		close(t.all)
	}
	t.mu.Unlock()
	why := t.listen(c)
	if c.cmd == nil {
		close(c.ended)
	}
	t.gone(c, why)
}

// unexpected is why an agent cannot be let in. The caller holds mu.
func (t *Team) unexpected(h *wire.Hello) error {
	switch i := h.From; {
	case i < len(t.children) && t.children[i].ch != nil:
		return fmt.Errorf("%v has come already", t.children[i])
	case i >= len(t.children) || t.released:
		return fmt.Errorf("agent %d is not expected", i)
	}
	for _, c := range t.children {
		if c.ch != nil && h.Local > 0 && h.Local == c.hello.Local && onHost(h) == onHost(&c.hello) {
			return fmt.Errorf("local rank %d of host %s is that of %v too", h.Local-1, h.Host, c)
		}
	}
	return nil
}

// beat tells an agent that the driver lives.
func (t *Team) beat(c *child) {
	every := time.NewTicker(t.seat.Silence / 6)
	defer every.Stop()
	for c.ch.Send(note{Kind: noteBeat}, t.seat.Silence) == nil {
		select {
		case <-every.C:
		case <-c.ended:
			return
		}
	}
}

// gone is of an agent that is one no longer. The first ends the team, which does
// without none.
func (t *Team) gone(c *child, why error) {
	var slow net.Error
	if errors.As(why, &slow) && slow.Timeout() {
		why = fmt.Errorf("has said nothing for %v", t.seat.Silence)
	} else {
		why = c.last(why)
	}
	t.mu.Lock()
	ending := t.released // then Close waits for it, longer than last does
	t.lose(c.lost(why))
	runs := make([]*run, 0, len(t.runs))
	for _, r := range t.runs {
		runs = append(runs, r)
	}
	t.mu.Unlock()
	if !ending {
		c.kill() // where it is only silent, its ranks must not go on
	}
	for _, r := range runs {
		r.ends(c.agent, nil)
	}
}

// send says something to agents; nil are all. Who does not take it is noticed by
// whoever listens to it.
func (t *Team) send(n note, agents []int) {
	if agents == nil {
		agents = make([]int, t.seat.Agents)
		for i := range agents {
			agents[i] = i
		}
	}
	for _, i := range agents {
		if c := t.children[i]; c.ch != nil {
			_ = c.ch.Send(n, t.seat.Silence)
		}
	}
}

// Close ends the agents, each with an exit code, and returns when they have.
func (t *Team) Close(code int) {
	t.mu.Lock()
	t.released = true
	t.mu.Unlock()
	t.send(note{Kind: noteEnd, Code: code}, nil)
	t.reap(patienceToEnd)
}

// patienceToEnd is how long agents that are told to end may take: on a machine with other
// work, and under the race detector, which takes a second for that, they are late.
const patienceToEnd = 5 * time.Second

// kill ends what there is of a team that did not come about.
func (t *Team) kill() {
	t.mu.Lock()
	t.released = true
	t.mu.Unlock()
	t.reap(0)
}

func (t *Team) reap(patience time.Duration) {
	t.ln.Close()
	t.seat.clear()
	var all sync.WaitGroup
	for _, c := range t.children {
		all.Go(func() { c.end(patience) })
	}
	all.Wait()
	for _, c := range t.children {
		if c.ch != nil {
			c.ch.Conn.Close()
		}
	}
}
