package cli

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/shm"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/kernels"
)

// transports make worlds of ranks that are goroutines of this process, by name.
func transports() map[string]comm.World {
	return map[string]comm.World{procs.Auto: nil, "local": nil, procs.MPI: nil, procs.Shm: shm.Local, procs.TCP: tcp.Local}
}

// Transports names how ranks can reach each other: local is in the memory of this
// process, shm and tcp as processes of a host do, mpi only between processes that mpirun
// has started, and auto, the first, what suits where they are.
func Transports() []string { return slices.Sorted(maps.Keys(transports())) }

// Transport is the world of a name.
func Transport(name string) (comm.World, error) {
	world, ok := transports()[name]
	if !ok {
		return nil, Usagef("transport %q: known are %s", name, strings.Join(Transports(), ", "))
	}
	return world, nil
}

// Pool is memory for the tensors of a run, which other ranks of this host read where they
// lie; nil where none reads another's memory, or this system has none: then what they send
// each other is copied. It takes what is allocated in it until the process ends.
func (p *Placement) Pool() kernels.Pool {
	if p.Transport != procs.Shm && !(p.Apart() && p.Transport == procs.Auto) {
		return nil
	}
	pool, err := shm.Memory()
	if err != nil {
		return nil
	}
	return pool
}

// OneProcess says how the goroutines of a process reach each other; empty where that is
// by its memory.
func OneProcess(transport string) string {
	if transports()[transport] == nil {
		return ""
	}
	return transport + ", ranks of one process"
}

// Links says by which ways ranks in several processes have reached each other.
func Links(ways []string) string { return cmp.Or(strings.Join(ways, " and "), "no links") }
