//go:build unix

package procs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// rows are the known failures of launching ranks that must not be had here, by their
// numbers in the table of public bugs, each with the test that shows it.
func rows() map[string]string {
	return map[string]string{
		"L01 a rank is killed, the others hang":            "outage TestKilledAtRandom",
		"L03 shares that end before the others":            "train TestUnevenSharesEndTogether",
		"L04 a port in use":                                "procs TestTakenPort",
		"L06 a port that the others cannot know":           "procs TestFindPlaces",
		"L08 the first interface is not the one that goes": "procs TestInterfaces",
		"L09 only loopback, or one version of IP":          "procs TestEitherLoopback",
		"L12 numbers replaced by names":                    "procs TestNumbersAreNotLookedUp",
		"L13 numbers of tasks that cannot both be":         "procs TestFind",
		"L15 a step of fewer tasks than its job":           "procs TestFind",
		"L16 an allocation taken for a step":               "procs TestFind",
		"L17 no local rank":                                "procs TestFind",
		"L18 the rank taken for the local rank":            "procs TestFindPlaces",
		"L19 all local ranks are 0":                        "outage TestAllLocalRanksAreZero",
		"L22 another number of processes than configured":  "procs TestFind",
		"L23 the local rank as a flag, in two spellings":   "cli TestNetworkFlags",
		"L24 nothing to reduce":                            "tcp TestSuite",
		"L25 strides that are ignored":                     "commtest TestDefectsAreCaught",
	}
}

// Every row has its test.
func TestRows(t *testing.T) {
	dirs := map[string]string{"procs": ".", "cli": "../../../cmd/internal/cli", "outage": "../../../internal/outage", "train": "../../train",
		"tcp": "../../comm/tcp", "commtest": "../../comm/commtest"}
	var tests []string
	for name, dir := range dirs {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if !strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			b, err := os.ReadFile(dir + "/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				if rest, ok := strings.CutPrefix(line, "func "); ok {
					test, _, _ := strings.Cut(rest, "(")
					tests = append(tests, name+" "+test)
				}
			}
		}
	}
	for row, test := range rows() {
		if !slices.Contains(tests, test) {
			t.Errorf("%s: there is no %s", row, test)
		}
	}
}

// node is a host whose first interface leads nowhere, as those of container engines do.
func node() []local {
	at := func(name, in string, down bool) local {
		p := netip.MustParsePrefix(in)
		ip := p.Addr()
		if ip.Is6() && ip.IsLinkLocalUnicast() {
			ip = ip.WithZone(name)
		}
		return local{ip: ip, on: name, in: p.Masked(), down: down}
	}
	return []local{at("docker0", "172.17.0.1/16", false), at("lo", "127.0.0.1/8", false), at("eth0", "fe80::1/64", false), at("eth0", "10.0.0.7/24", false),
		at("eth0", "fd00::7/64", false), at("ib0", "10.1.0.7/24", true)}
}

// Where agents listen is where the route goes, or what the user names, and never the
// first interface that there is.
func TestInterfaces(t *testing.T) {
	all := node()
	for _, x := range []struct {
		on, host string
		want     string // the address, or a part of the error
	}{
		{"", "10.0.0.7", "10.0.0.7"},
		{"", "10.9.9.9", "10.9.9.9"}, // whether it is this host's, listening shows
		{"eth0", "node1", "10.0.0.7"},
		{"eth0", "fd00::9", "fd00::7"},
		{"10.0.0.0/8", "node1", "10.0.0.7"},
		{"fd00::/16", "node1", "fd00::7"},
		{"10.0.0.7", "node1", "10.0.0.7"},
		{"127.0.0.3", "node1", "127.0.0.3"},
		{"eth1", "node1", "interface eth1: this host has none such: it has docker0 172.17.0.1, lo 127.0.0.1, eth0 fe80::1%eth0"},
		{"ib0", "node1", "interface ib0: is down"},
	} {
		n := Network{Interface: x.on}
		ip, err := n.here(t.Context(), x.host, all)
		if got := ip.String(); err == nil && got != x.want || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s for %s: %s, %v", x.on, x.host, got, err)
		}
	}
	for addrs, want := range map[string]string{
		"10.0.0.7":            "10.0.0.7",
		"127.0.1.1 10.0.0.7":  "10.0.0.7",
		"10.5.0.1 fd00::7":    "fd00::7",
		"127.0.1.1":           "node1 is 127.0.1.1 on this host, where no other can go",
		"10.5.0.1":            "node1 is 10.5.0.1, and this host has docker0 172.17.0.1",
		"::ffff:10.0.0.7 ::1": "10.0.0.7",
	} {
		var found []netip.Addr
		for _, a := range strings.Fields(addrs) {
			found = append(found, netip.MustParseAddr(a))
		}
		ip, err := ours("node1", found, all)
		if got := ip.String(); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v", addrs, got, err)
		}
	}
	p, err := (&Seat{Apart: true, Network: Network{Host: "node1"}}).place(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil || p.ip.String() != "127.0.0.1" || !strings.HasPrefix(p.String(), "on node1, 127.0.0.1") {
		t.Errorf("%v, %v", p, err)
	}
}

// What is a number is used as it is given: no name is looked up for it, in neither
// direction, and a link's zone is each host's own.
func TestNumbersAreNotLookedUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // whoever looks something up gets an error
	for _, host := range []string{"10.0.0.1", "fd00::1", "fe80::1%eth0"} {
		if ip, err := (&Network{}).here(ctx, host, node()); err != nil || ip.String() != host {
			t.Errorf("%s: %v, %v", host, ip, err)
		}
	}
	if _, err := (&Network{}).here(ctx, "node1.invalid", node()); err == nil {
		t.Error("a name is not looked up")
	}
	for addr, want := range map[string]string{
		"10.0.0.1:7 on node1, 10.0.0.1 (interface eth0)": "10.0.0.1:7",
		"[fe80::1]:7 on node1":                           "[fe80::1%eth3]:7",
		"[fd00::1]:7":                                    "[fd00::1]:7",
	} {
		if got := toward(addr, "eth3"); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// A host that has loopback of one version of IP only is enough for ranks on it.
func TestEitherLoopback(t *testing.T) {
	none := errors.New("address family not supported by protocol")
	for _, lacks := range []string{"127.0.0.1:0", "[::1]:0", ""} {
		got := ""
		_, err := either(func(_, at string) (net.Listener, error) {
			if at == lacks || lacks == "" {
				return nil, none
			}
			got = at
			return nil, nil
		})
		if lacks == "" && !errors.Is(err, none) || lacks != "" && (err != nil || got == lacks || got == "") {
			t.Errorf("without %q: %q, %v", lacks, got, err)
		}
	}
}
