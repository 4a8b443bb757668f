//go:build unix

package procs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// The processes that a launcher has started on one host meet by a file that only their
// user can write and read: it says where the driver listens, and its token.

// place is the file of a job.
func (f *Found) place() string {
	sum := sha256.Sum256([]byte(f.Source + " " + f.Job))
	return filepath.Join(os.TempDir(), fmt.Sprintf("lockstep-%d-%s.json", os.Getuid(), hex.EncodeToString(sum[:8])))
}

// announce makes the file, in the place of one that another run has left; gone removes
// it.
func (f *Found) announce(s Seat) (gone func(), err error) {
	said, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.place()), ".lockstep-*") // for its user alone
	if err != nil {
		return nil, err
	}
	_, err = tmp.Write(said)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), f.place())
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(tmp.Name()))
	}
	return func() { _ = os.Remove(f.place()) }, nil // one that is left is replaced
}

// read is what the file says; an error that is fs.ErrNotExist where there is none yet.
func (f *Found) read() (s Seat, err error) {
	info, err := os.Lstat(f.place())
	if err != nil {
		return s, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || !ok || int(owner.Uid) != os.Getuid() {
		return s, &notPrivate{fmt.Errorf("%s: must be a file that its user alone, who is this process's, can read", f.place())}
	}
	b, err := os.ReadFile(f.place())
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if s.Agents != f.Agents && err == nil {
		err = &notPrivate{fmt.Errorf("%s: is of %d agents, %s", f.place(), s.Agents, f)}
	}
	s.Agent = f.Agent
	return s, err
}

// Serve takes this process's seat in the team of the first of those that the launcher
// has started, and does what that asks for: see Seat.Serve.
func (f *Found) Serve(ctx context.Context, identity string, work Work) (int, error) {
	patience := within(f.Deadline, MaxJoin)
	late, pause := time.Now().Add(patience), 20*time.Millisecond
	var told error // by somebody who is no driver of this one: says more than that nobody is there
	for {
		code, err := f.try(ctx, identity, work)
		refused := (*wire.Refusal)(nil)
		if err == nil || errors.As(err, new(*inSeat)) || errors.As(err, new(*notPrivate)) || errors.As(err, &refused) && !refused.Elsewhere {
			return code, err
		}
		if dialing := (*net.OpError)(nil); !errors.Is(err, fs.ErrNotExist) && !(errors.As(err, &dialing) && dialing.Op == "dial") {
			told = err
		}
		if time.Now().After(late) {
			return 0, fmt.Errorf("%v: did not reach its driver%s within %v: %w", f, f.whither(), patience, cmp.Or(told, err))
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(pause): // the file may be that of a run before, and the driver not there
		}
		if len(f.Places) > 0 {
			pause = min(2*pause, time.Second)
		}
	}
}

// try goes once to where the driver may be.
func (f *Found) try(ctx context.Context, identity string, work Work) (code int, err error) {
	if len(f.Places) == 0 {
		s, err := f.read()
		if err != nil {
			return 0, err
		}
		f.fill(&s)
		return s.Serve(ctx, identity, work)
	}
	var first error
	for _, at := range f.Places {
		s := f.seat(at)
		f.fill(&s)
		code, err = s.Serve(ctx, identity, work)
		refused := (*wire.Refusal)(nil)
		if err == nil || errors.As(err, new(*inSeat)) || errors.As(err, &refused) && !refused.Elsewhere {
			return code, err
		}
		if first == nil || refused != nil { // who answers has more to say than who is not there
			first = err
		}
	}
	return 0, first
}

// seat is one in a team whose driver listens at an address.
func (f *Found) seat(driver string) Seat {
	return Seat{Driver: driver, Run: f.run(), Token: f.Network.Token, Agents: f.Agents, Join: within(f.Deadline, MaxJoin), Silence: within(f.Deadline, MaxSilence),
		Apart: true, Network: f.Network}
}

// fill gives a seat what this process alone knows.
func (f *Found) fill(s *Seat) {
	s.Agent, s.Local, s.Share, s.Shared, s.Carrier, s.Failed = f.Agent, f.Local+1, f.Share, f.Shared, f.Carrier, f.Failed
}

// whither says where a process that did not reach its driver has looked.
func (f *Found) whither() string {
	if len(f.Places) == 0 {
		return " by " + f.place() + " (if that is on another host, --rendezvous HOST:PORT says where)"
	}
	return " at " + strings.Join(f.Places, ", ")
}

// open listens where the others go, and says where that is: a listener does not say the
// zone of an address of a link.
func (f *Found) open(ctx context.Context) (ln net.Listener, at string, err error) {
	all := locals()
	for _, place := range f.Places {
		host, port, err := net.SplitHostPort(place)
		if err != nil {
			return nil, "", err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, "", err
		}
		ip, err := f.Network.here(ctx, host, all)
		if err != nil {
			return nil, "", fmt.Errorf("rendezvous %s: %w", place, err)
		}
		ln, err = listen(ip, Ports{number, number})
		switch {
		case err == nil:
			return ln, netip.AddrPortFrom(ip, uint16(number)).String(), nil
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return nil, "", fmt.Errorf("rendezvous %s: this host has %s: agent 0 must be there, or be told --interface: %w", place, addresses(all), err)
		case !errors.Is(err, syscall.EADDRINUSE) || place == f.Places[len(f.Places)-1]:
			return nil, "", fmt.Errorf("rendezvous %s: %w", place, err)
		}
	}
	return nil, "", fmt.Errorf("%v: nothing says where to listen", f)
}

// inSeat is what ends an agent that had come.
type inSeat struct{ err error }

func (e *inSeat) Error() string { return e.err.Error() }
func (e *inSeat) Unwrap() error { return e.err }

// notPrivate is what is wrong with the file of a job.
type notPrivate struct{ err error }

func (e *notPrivate) Error() string { return e.err.Error() }
func (e *notPrivate) Unwrap() error { return e.err }
