package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
)

// transports make worlds of ranks that are goroutines of this process, by name.
func transports() map[string]comm.World {
	return map[string]comm.World{"local": nil, tcpTransport: tcp.Local}
}

// tcpTransport is the name of the one that reaches other processes.
const tcpTransport = "tcp"

// Transports names how ranks can reach each other: local is in the memory of this
// process, tcp over its loopback interface.
func Transports() []string { return slices.Sorted(maps.Keys(transports())) }

// Transport is the world of a name.
func Transport(name string) (comm.World, error) {
	world, ok := transports()[name]
	if !ok {
		return nil, Usagef("transport %q: known are %s", name, strings.Join(Transports(), ", "))
	}
	return world, nil
}
