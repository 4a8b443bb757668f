package procs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// Network is how agents reach each other that may be on several hosts.
type Network struct {
	// Rendezvous is where agent 0 listens, host and port; empty is what a launcher says.
	Rendezvous string
	// Token is a secret that all know. Off loopback there must be one.
	Token []byte
	// TLS, where not nil, is of all connections.
	TLS *tls.Config
	// Interface says where the agents of this host listen: a name, an address, or a
	// range of addresses (CIDR). Empty is the address from which the route to agent 0
	// goes.
	Interface string
	// Ports are those at which ranks listen; the zero value is any.
	Ports Ports
	// Host names this host; empty is what the system says.
	Host string
}

// TLS is the configuration of agents that show each other certificates of one
// authority: see wire.TLS.
func TLS(cert, key, authority string) (*tls.Config, error) { return wire.TLS(cert, key, authority) }

// MinToken is the least length of a token in bytes.
const MinToken = 16

// NewToken says how to make a token.
const NewToken = "head -c 32 /dev/urandom | base64 > token && chmod 600 token"

// Ports is a range of them, with both ends.
type Ports struct{ Low, High int }

const maxPort = 65535

// ParsePorts reads a range of ports, such as 29501-29600, or one.
func ParsePorts(text string) (p Ports, err error) {
	low, high, several := strings.Cut(text, "-")
	if !several {
		high = low
	}
	if p.Low, err = strconv.Atoi(low); err == nil {
		p.High, err = strconv.Atoi(high)
	}
	if err != nil || p.Low < 1 || p.High > maxPort || p.Low > p.High {
		return Ports{}, fmt.Errorf("ports %q: must be a range such as 29501-29600 within 1-%d", text, maxPort)
	}
	return p, nil
}

// check refuses what cannot be, or is not safe.
func (n *Network) check(f *Found) error {
	for _, at := range f.Places {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			return fmt.Errorf("rendezvous %q: must be HOST:PORT: %w", at, err)
		}
		k, err := strconv.Atoi(port)
		switch {
		case host == "":
			return fmt.Errorf("rendezvous %q: names no host, and the others could not go there", at)
		case err == nil && k == 0:
			return fmt.Errorf("rendezvous %q: the others could not know which port agent 0 gets for 0; name one", at)
		case err != nil || k < 0 || k > maxPort:
			return fmt.Errorf("rendezvous %q: port must lie within 1-%d", at, maxPort)
		}
		ip, err := netip.ParseAddr(host)
		if err == nil && ip.IsUnspecified() {
			return fmt.Errorf("rendezvous %q: is no address to which the others could go", at)
		}
		why := ""
		switch alone := err == nil && ip.Unmap().IsLoopback() || isLocalhost(host); {
		case !alone:
			why = fmt.Sprintf("rendezvous %s: is not loopback", at)
		case n.Interface != "":
			why = fmt.Sprintf("rendezvous %s, interface %s: others than this host may come", at, n.Interface)
		}
		if why != "" && len(n.Token) == 0 {
			return fmt.Errorf("%s, so all agents must know a secret: --token-file FILE or LOCKSTEP_TOKEN; make one by %s", why, NewToken)
		}
	}
	if len(n.Token) > 0 && len(n.Token) < MinToken {
		return fmt.Errorf("token: has %d bytes, must have at least %d; make one by %s", len(n.Token), MinToken, NewToken)
	}
	return nil
}

// isLocalhost reports whether a name is that of the host on which it is said.
func isLocalhost(name string) bool { return strings.EqualFold(name, "localhost") }

// local is an address of this host as its interfaces have it.
type local struct {
	ip   netip.Addr // with the zone where it is link-local
	on   string     // the interface's name
	in   netip.Prefix
	down bool
}

// locals lists the addresses of this host.
func locals() (out []local) {
	all, _ := net.Interfaces() // without any there is no address
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			in, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			ip := in.Addr().Unmap()
			if ip.Is6() && ip.IsLinkLocalUnicast() {
				ip = ip.WithZone(i.Name)
			}
			out = append(out, local{ip: ip, on: i.Name, in: in.Masked(), down: i.Flags&net.FlagUp == 0})
		}
	}
	return out
}

// addresses lists those of this host in words: "eth0 10.0.0.2, lo 127.0.0.1".
func addresses(all []local) string {
	var out []string
	for _, l := range all {
		out = append(out, l.on+" "+l.ip.String())
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// on names the interface that has an address; empty where none has.
func on(ip netip.Addr, all []local) string {
	for _, l := range all {
		if l.ip.WithZone("") == ip.Unmap().WithZone("") && (ip.Zone() == "" || ip.Zone() == l.on) {
			return l.on
		}
	}
	return ""
}

// chosen is the address of the interface that was named, one of version 6 only where
// there is no other or it is wanted; the zero value where none was.
func (n *Network) chosen(all []local, six bool) (netip.Addr, error) {
	if n.Interface == "" {
		return netip.Addr{}, nil
	}
	within, err := netip.ParsePrefix(n.Interface)
	if ip, iperr := netip.ParseAddr(n.Interface); iperr == nil {
		within, err = netip.PrefixFrom(ip.WithZone(""), ip.BitLen()), nil
	}
	var best local
	rank := func(l local) (r int) {
		if l.ip.Is6() == six {
			r += 2
		}
		if !l.ip.IsLinkLocalUnicast() {
			r++
		}
		return r
	}
	for _, l := range all {
		fits := l.on == n.Interface || err == nil && within.Contains(l.ip.WithZone(""))
		if fits && (!best.ip.IsValid() || rank(l) > rank(best)) {
			best = l
		}
	}
	if ip, iperr := netip.ParseAddr(n.Interface); iperr == nil && ip.IsLoopback() && !best.ip.IsValid() {
		return ip, nil // 127.0.0.0/8 is all of this host's
	}
	switch {
	case !best.ip.IsValid():
		return best.ip, fmt.Errorf("interface %s: this host has none such: it has %s", n.Interface, addresses(all))
	case best.down:
		return best.ip, fmt.Errorf("interface %s: is down", best.on)
	}
	return best.ip, nil
}

// here is the address at which agent 0 listens for those that go to a host.
func (n *Network) here(ctx context.Context, host string, all []local) (netip.Addr, error) {
	numeric, err := netip.ParseAddr(host) // as it is given: no name is looked up for a number
	if ip, cerr := n.chosen(all, err == nil && numeric.Is6()); ip.IsValid() || cerr != nil {
		return ip, cerr
	}
	if err == nil {
		return numeric, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	return ours(host, found, all)
}

// ours is which of a name's addresses is this host's.
func ours(host string, found []netip.Addr, all []local) (netip.Addr, error) {
	var said []string
	loopback := netip.Addr{}
	for _, ip := range found {
		ip = ip.Unmap()
		said = append(said, ip.String())
		switch {
		case ip.IsLoopback() && !loopback.IsValid():
			loopback = ip
		case !ip.IsLoopback() && on(ip, all) != "":
			return ip, nil
		}
	}
	switch {
	case loopback.IsValid() && isLocalhost(host):
		return loopback, nil
	case loopback.IsValid():
		return loopback, fmt.Errorf("%s is %s on this host, where no other can go: name an address, or --interface", host, strings.Join(said, ", "))
	}
	return loopback, fmt.Errorf("%s is %s, and this host has %s: agent 0 must be there, or be told --interface", host, strings.Join(said, ", "), addresses(all))
}

// listen listens at an address, at any port of a range.
func listen(ip netip.Addr, in Ports) (net.Listener, error) {
	n := in.High - in.Low + 1
	begin, first := rand.IntN(n), error(nil)
	for i := range n {
		port := in.Low + (begin+i)%n
		ln, err := net.Listen("tcp", netip.AddrPortFrom(ip, uint16(port)).String())
		if err == nil {
			return ln, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			return nil, err
		}
		if first == nil {
			first = taken(err, port)
		}
	}
	if n > 1 {
		return nil, fmt.Errorf("none of the ports %d-%d of %s is free; one of them: %w", in.Low, in.High, ip, first)
	}
	return nil, first
}

// taken says of a port that somebody has it, and who where that can be seen.
func taken(err error, port int) error {
	if who := owner(port); errors.Is(err, syscall.EADDRINUSE) && who != "" {
		return fmt.Errorf("%w: port %d is of %s", err, port, who)
	}
	return err
}
