//go:build unix

package tcp

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Join is this rank's end of a world whose ranks reach each other by TCP. It returns
// when all ranks have joined; be is where the rank's tensors live and its kernels run.
// Close leaves the world; rank 0 goes on to listen for the others until they have left.
func Join(ctx context.Context, cfg Config, be kernels.Backend) (comm.Communicator, error) {
	n, err := enter(cfg, be)
	if err != nil {
		return nil, err
	}
	return n.world(ctx)
}

// world joins and opens the group of all ranks.
func (n *node) world(ctx context.Context) (comm.Communicator, error) {
	if err := n.join(ctx); err != nil {
		n.ln.Close()
		return nil, err
	}
	ranks := make([]int, n.cfg.Size)
	for r := range ranks {
		ranks[r] = r
	}
	return newEnd(n, worldID, ranks, n.cfg.Rank), nil
}

// Local is a comm.World whose ranks are goroutines of this process and reach each
// other over its loopback interface.
func Local(ctx context.Context, size int, backend func(rank int) kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
	if size < 1 {
		return nil, fmt.Errorf("tcp: world of %d ranks: want at least 1", size)
	}
	ends, nodes := make([]comm.Communicator, size), make([]*node, size)
	run := fmt.Sprintf("local-%d", time.Now().UnixNano())
	for r := range nodes {
		n, err := enter(Config{Rank: r, Size: size, Run: run, Options: o}, backend(r))
		if err != nil {
			return nil, err
		}
		nodes[r] = n
		n.cfg.Coordinator = nodes[0].ln.Addr().String()
	}
	var all errgroup.Group
	for r, n := range nodes {
		all.Go(func() (err error) {
			ends[r], err = n.world(ctx)
			return err
		})
	}
	return ends, all.Wait()
}
