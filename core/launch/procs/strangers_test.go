//go:build unix

package procs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// greet says hello at a driver's port once somebody listens there, as agent 1 of a team but for what
// change makes another, and gives the other side's answer.
func greet(o Options, change func(*wire.Terms, *wire.Hello)) (*wire.Channel, error) {
	f := *o.Found
	f.Agent = 1
	s := f.seat(f.Places[0])
	s.Agents = o.Agents
	terms := s.terms(o.Identity, 1)
	h := terms.Hello(s.Agents)
	if change != nil {
		change(terms, &h)
	}
	for begun := time.Now(); ; {
		conn, err := net.Dial("tcp", f.Places[0])
		if err == nil {
			return terms.Greet(context.Background(), conn, h)
		}
		if time.Since(begun) > 10*time.Second {
			return nil, err
		}
	}
}

// Agents that are there as soon as their driver listens are let in: others wait for that
// moment, all at once.
func TestComeAtOnce(t *testing.T) {
	const agents = 64
	opts := apart(t, agents, free(t, "127.0.0.1"))
	told, over := make([]error, agents), make(chan struct{})
	var came sync.WaitGroup
	for i := 1; i < agents; i++ {
		came.Go(func() {
			var ch *wire.Channel
			if ch, told[i] = greet(opts, func(_ *wire.Terms, h *wire.Hello) { h.From = i }); told[i] == nil {
				<-over
				ch.Conn.Close()
			}
		})
	}
	team, err := Start(t.Context(), opts)
	close(over)
	if err == nil {
		team.Close(0)
	}
	if came.Wait(); err != nil {
		t.Errorf("%v, %v", err, errors.Join(told...))
	}
}

// Once all agents have come, whoever knows the token and yet is none of them is told why
// it is not let in, and the team goes on.
func TestLateStrangersChangeNothing(t *testing.T) {
	opts := apart(t, 2, free(t, "127.0.0.1"))
	other := elsewhere(t, opts, 1, ordinary)
	team, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close(0)
	for says, change := range map[string]func(*wire.Terms, *wire.Hello){
		"agent 1 (process " + fmt.Sprint(other.Process.Pid) + " on other1) has come already": nil,
		"program and configuration is another there":                                         func(_ *wire.Terms, h *wire.Hello) { h.Identity = "another" },
		"number of agents is 8 there and 2 here":                                             func(_ *wire.Terms, h *wire.Hello) { h.World = 9 },
		"agent dialed is 7 there and 2 here":                                                 func(_ *wire.Terms, h *wire.Hello) { h.To = 7 },
		"agent -1 in a world of 3":                                                           func(_ *wire.Terms, h *wire.Hello) { h.From = -1 },
		"agent 3 in a world of 3":                                                            func(_ *wire.Terms, h *wire.Hello) { h.From = 3 },
		"agent 2 is not expected":                                                            func(_ *wire.Terms, h *wire.Hello) { h.From = 2 },
		"protocol version is 7 there and 1 here":                                             func(_ *wire.Terms, h *wire.Hello) { h.Version = 7 },
		"the token does not fit":                                                             func(x *wire.Terms, _ *wire.Hello) { x.Token = []byte("another, long enough") },
		"run is another there":                                                               func(_ *wire.Terms, h *wire.Hello) { h.Run = "another" },
	} {
		ch, err := greet(opts, change)
		if refused := (*wire.Refusal)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, %v, want %q", ch, err, says)
		}
	}
	if _, err := team.Run(t.Context(), order{Plan: "dp=2", Steps: 3}.task(t)); err != nil {
		t.Error(err)
	}
}

// Before, who is of the run but cannot be one of its agents ends it, whatever number it
// says it has.
func TestEarlyStrangersEndTheTeam(t *testing.T) {
	for says, change := range map[string]func(*wire.Terms, *wire.Hello){
		"agent 1 (process 0) was refused: program and configuration is another there": func(_ *wire.Terms, h *wire.Hello) { h.Identity = "another" },
		"did not come within 1s; last refused: 127.0.0.1":                             func(_ *wire.Terms, h *wire.Hello) { h.From = -1 },
	} {
		opts := apart(t, 2, free(t, "127.0.0.1"))
		opts.Deadline = time.Second
		go func() { _, _ = greet(opts, change) }() // what it is told is not in question here
		team, err := Start(t.Context(), opts)
		if err == nil {
			team.Close(0)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// An agent that was shut out to make room for strangers tries again; one that was
// refused does not.
func TestShutOut(t *testing.T) {
	for name, token := range map[string]string{"": testToken, "the token does not fit": "another token, long enough"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		s := Seat{Driver: ln.Addr().String(), Run: "a run", Token: []byte(testToken), Agents: 1, Join: 10 * time.Second, Silence: 10 * time.Second}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(seatVariable, string(text))
		seat, err := Taken()
		if err != nil {
			t.Fatal(err)
		}
		seat.Token = []byte(token)
		go func() {
			for range 3 {
				if c, err := ln.Accept(); err == nil {
					c.Close()
				}
			}
			s.terms("a program", 1).Serve(ln, func(g *wire.Guest) {
				_ = g.Welcome() // the agent sees whether it is
				_ = g.Send(note{Kind: noteEnd, Code: 3}, time.Second)
			}, nil)
		}()
		code, err := seat.Serve(t.Context(), "a program", nil)
		if name == "" && (err != nil || code != 3) || name != "" && (err == nil || !strings.Contains(err.Error(), name)) {
			t.Errorf("%d, %v, want %q", code, err, name)
		}
	}
}
