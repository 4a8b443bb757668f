//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/shm"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/kernels"
)

// pool is what vectors are allocated from, where the ranks of other workers are to read
// them; nil is the run-time's memory.
func (p *place) pool() (kernels.Pool, error) {
	if p.by != "shm" {
		return nil, nil
	}
	return shm.Memory()
}

// open joins the world with the ranks that this worker carries, and starts the workers
// of the others.
func (p *place) open(be kernels.Backend) ([]comm.Communicator, crew, error) {
	var way engine.Way
	var err error
	switch p.by {
	case "local":
		ends, err := comm.NewLocal(p.ranks, func(int) kernels.Backend { return be }, comm.Options{})
		return ends, nil, err
	case "tcp":
		way, err = tcp.Listen("127.0.0.1:0")
	case "shm":
		way, err = shm.Listen()
	default:
		err = fmt.Errorf("-by %q: want tcp, shm or local", p.by)
	}
	if err != nil {
		return nil, nil, err
	}
	c := engine.Config{Rank: p.rank, Size: p.ranks, Ways: []engine.Way{way}, Coordinator: p.meet, Run: "collectives"}
	if p.rank == 0 {
		c.Coordinator = c.Addr()
	}
	others, err := p.gather(c.Coordinator)
	if err != nil {
		return nil, nil, err
	}
	end, err := engine.Join(context.Background(), c, be)
	return []comm.Communicator{end}, others, err
}
