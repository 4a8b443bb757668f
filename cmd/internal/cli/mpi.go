//go:build mpi

package cli

import (
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/mpi"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
)

// carrier is MPI.
func carrier() procs.Carrier { return &overMPI{} }

// overMPI is a procs.Carrier.
type overMPI struct{ here *mpi.Process }

// Open implements procs.Carrier.
func (o *overMPI) Open(agents int) (err error) {
	o.here, err = mpi.Open(agents)
	return err
}

// Way implements procs.Carrier.
func (o *overMPI) Way(w engine.Way) engine.Way { return o.here.Way(w) }

// Close implements procs.Carrier.
func (o *overMPI) Close() error { return o.here.Close() }
