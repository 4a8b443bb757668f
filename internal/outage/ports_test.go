//go:build linux

package outage

import (
	"bufio"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// port is where a process of a stage listens.
type port struct {
	pid           int
	network, addr string
}

// ports lists where the processes of a stage listen now: TCP, and Unix sockets that are
// in no file system.
func (s *stage) ports() (out []port) {
	sockets := map[string]port{}
	for _, table := range []string{"tcp", "tcp6", "unix"} {
		listening(table, sockets)
	}
	for _, p := range s.processes() {
		all, _ := filepath.Glob("/proc/" + strconv.Itoa(p.pid) + "/fd/*") // it may have ended
		for _, fd := range all {
			to, _ := os.Readlink(fd) // as before
			if at, listens := sockets[to]; listens {
				at.pid = p.pid
				out = append(out, at)
			}
		}
	}
	slices.SortFunc(out, func(a, b port) int {
		return strings.Compare(a.network+a.addr, b.network+b.addr)
	})
	return slices.Compact(out)
}

// listening adds the sockets of a table of the system that listen.
func listening(table string, sockets map[string]port) {
	f, err := os.Open("/proc/net/" + table)
	if err != nil {
		return // a system without IPv6
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		x := strings.Fields(lines.Text())
		switch {
		case table == "unix" && len(x) == 8 && x[3] == "00010000" && strings.HasPrefix(x[7], "@"):
			sockets["socket:["+x[6]+"]"] = port{network: "unix", addr: x[7]}
		case table != "unix" && len(x) > 9 && x[3] == "0A":
			if at, ok := address(x[1]); ok {
				sockets["socket:["+x[9]+"]"] = port{network: "tcp", addr: at.String()}
			}
		}
	}
}

// address reads one as the system's tables have it: words in the byte order of a
// little-endian machine, and a port.
func address(text string) (netip.AddrPort, bool) {
	words, number, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	p, perr := strconv.ParseUint(number, 16, 16)
	if err != nil || perr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	ip, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip.Unmap(), uint16(p)), ok
}

// dial connects to a port.
func (p port) dial() (net.Conn, error) { return net.Dial(p.network, p.addr) }

// level is how much a process has of what must not grow.
type level struct{ memory, descriptors int }

// levels are those of the processes of a stage that work: of commands and agents, not of
// those that wait for a command's end.
func (s *stage) levels() map[process]level {
	out := map[process]level{}
	for _, p := range s.processes() {
		dir := "/proc/" + strconv.Itoa(p.pid)
		status, _ := os.ReadFile(dir + "/status") // it may have ended
		_, after, ok := strings.Cut(string(status), "RssAnon:")
		open, err := os.ReadDir(dir + "/fd")
		if x := strings.Fields(after); ok && len(x) > 0 && err == nil && (p.works || p.agent >= 0) {
			kilobytes, _ := strconv.Atoi(x[0])
			out[p] = level{kilobytes << 10, len(open)}
		}
	}
	return out
}
