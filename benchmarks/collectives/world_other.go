//go:build !unix

package main

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/kernels"
)

// pool is none.
func (p *place) pool() (kernels.Pool, error) { return nil, nil }

// open makes a world of goroutines: processes reach each other on Unix systems alone.
func (p *place) open(be kernels.Backend) ([]comm.Communicator, crew, error) {
	if p.by != "local" {
		return nil, nil, fmt.Errorf("-by %q: needs a Unix system", p.by)
	}
	ends, err := comm.NewLocal(p.ranks, func(int) kernels.Backend { return be }, comm.Options{})
	return ends, nil, err
}
