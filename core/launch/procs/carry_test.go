//go:build unix

package procs

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// pigeons are a Carrier whose Open ends as a test wants.
type pigeons struct {
	opens  chan error
	closed int
}

func (p *pigeons) Open(agents int) error {
	if agents != 3 {
		return errors.New("not all are asked")
	}
	return <-p.opens
}

func (p *pigeons) Way(w engine.Way) engine.Way { w.Name = "pigeons"; return w }
func (p *pigeons) Close() error                { p.closed++; return nil }

// carrier is an agent with pigeons, what it tells its driver, and a job that uses them.
func carrier(t *testing.T) (*pigeons, *agent, chan note, *Job) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	p := &pigeons{opens: make(chan error, 1)}
	a := &agent{Seat: &Seat{Agents: 3, Join: 300 * time.Millisecond, Silence: time.Second, Carrier: p}, ch: &wire.Channel{Conn: near}, jobs: map[int]*Job{}}
	told := make(chan note, 1)
	go func() {
		var n note
		if (&wire.Channel{Conn: far}).Receive(wire.MaxNote, time.Minute, &n) == nil {
			told <- n
		}
	}()
	j := newJob(t.Context(), a, &note{})
	j.transport = MPI
	return p, a, told, j
}

// Ranks reach each other by the carrier once all agents have opened it, and it is closed
// at the end; nobody waits for it for ever, or longer than a run goes on.
func TestCarrier(t *testing.T) {
	p, a, _, j := carrier(t)
	a.carry()
	if _, err := j.ways(); err == nil || !strings.Contains(err.Error(), "not all agents have begun with it within 300ms") {
		t.Errorf("while others do not come: %v", err)
	}
	j.cancel(errors.New("a peer is lost"))
	begun := time.Now()
	if _, err := j.ways(); err == nil || err.Error() != "a peer is lost" || time.Since(begun) > 250*time.Millisecond {
		t.Errorf("after the end of the run: %v after %v", err, time.Since(begun))
	}
	if a.carriesNoMore(); p.closed != 0 {
		t.Error("it is closed before it is open")
	}
	p.opens <- nil
	j = newJob(context.WithoutCancel(t.Context()), a, &note{})
	j.transport = MPI
	ways, err := j.ways()
	if err != nil || len(ways) != 1 || ways[0].Name != "pigeons" {
		t.Fatalf("%v, %v", ways, err)
	}
	ways[0].Listener.Close()
	if a.carriesNoMore(); p.closed != 1 {
		t.Error("it is not closed at the end")
	}
}

// An agent whose carrier does not open tells its driver why, and its ranks hear it.
func TestCarrierThatDoesNotOpen(t *testing.T) {
	p, a, told, j := carrier(t)
	a.carry()
	p.opens <- errors.New("no pigeons today")
	select {
	case n := <-told:
		if n.Kind != noteUnfit || n.Text != "no pigeons today" {
			t.Errorf("told %+v", n)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing is told")
	}
	if _, err := j.ways(); err == nil || err.Error() != "no pigeons today" {
		t.Error(err)
	}
	if a.carriesNoMore(); p.closed != 0 {
		t.Error("what is not open is closed")
	}
}
