//go:build unix

package procs

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
)

// place is where an agent is, and where its ranks listen.
type place struct {
	host string
	ip   netip.Addr // the zero value where all are on one host
	on   string     // the interface that has it
}

// where is the address in words: "10.0.0.2 (interface eth0)".
func (p place) where() string {
	switch {
	case !p.ip.IsValid():
		return ""
	case p.on == "":
		return p.ip.String()
	}
	return fmt.Sprintf("%s (interface %s)", p.ip, p.on)
}

// String is "on node7, 10.0.0.2 (interface eth0)".
func (p place) String() string {
	return strings.TrimSuffix("on "+p.host+", "+p.where(), ", ")
}

// place is this process's, whose connection to its driver begins at an address: others
// reach it there too, unless it was told another one.
func (s *Seat) place(from net.Addr) (p place, err error) {
	if p.host = s.Network.Host; p.host == "" {
		p.host, err = os.Hostname()
	}
	if err != nil || !s.Apart {
		return p, err
	}
	ap, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return p, err
	}
	all := locals()
	if p.ip, err = s.Network.chosen(all, ap.Addr().Is6()); err == nil && !p.ip.IsValid() {
		p.ip = ap.Addr().Unmap()
	}
	p.on = on(p.ip, all)
	return p, err
}

// boot tells this host from others of its name, where the system says so.
func boot() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // there is none elsewhere
	return strings.TrimSpace(string(b))
}

// ways are how a rank of this process is reached, and reaches others.
func (a *agent) ways() ([]engine.Way, error) {
	if !a.Apart {
		ln, err := loopback()
		if err != nil {
			return nil, err
		}
		return []engine.Way{tcp.Way(ln)}, nil
	}
	ln, err := listen(a.at.ip, a.Network.Ports)
	if err != nil {
		return nil, fmt.Errorf("a rank listens %s, where each needs a port of its own: %w", a.at, err)
	}
	w := tcp.Way(ln)
	if a.Network.TLS != nil {
		w = tcp.Secure(ln, a.Network.TLS)
	}
	ap := netip.MustParseAddrPort(ln.Addr().String())
	// What the others are told says in words where that is: they see it where they
	// cannot reach it. A zone is this host's name of a link, and another one's there.
	w.Addr = fmt.Sprintf("%s %s", netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), a.at)
	dial := w.Dial
	w.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, toward(addr, a.at.ip.Zone()))
		if err != nil {
			err = fmt.Errorf("%s: %w", addr, err)
		}
		return conn, err
	}
	return []engine.Way{w}, nil
}

// toward is where to dial what a peer is told of, through a zone of this host where the
// address is that of a link.
func toward(addr, zone string) string {
	addr, _, _ = strings.Cut(addr, " ")
	if ap, err := netip.ParseAddrPort(addr); err == nil && ap.Addr().IsLinkLocalUnicast() && ap.Addr().Is6() {
		return netip.AddrPortFrom(ap.Addr().WithZone(zone), ap.Port()).String()
	}
	return addr
}
