//go:build unix

package engine

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Join is this rank's end of a world. It returns when all ranks have joined; be is
// where the rank's tensors live and its kernels run, but for reductions of a Stager's,
// which are staged. Close leaves the world; rank 0
// goes on to listen for the others until they have left.
func Join(ctx context.Context, cfg Config, be kernels.Backend) (comm.Communicator, error) {
	on := be
	s, away := kernels.StagerOf(be)
	if away {
		on = s.Staging()
	}
	n, err := enter(cfg, on)
	if err != nil {
		return nil, err
	}
	c, err := n.world(ctx)
	if err != nil || !away {
		return c, err
	}
	return stage(c, be, on), nil
}

// JoinAll joins several ranks of a world, all or none: where one does not, the others
// leave it again.
func JoinAll(ctx context.Context, configs []Config, backend func(rank int) kernels.Backend) ([]comm.Communicator, error) {
	ends := make([]comm.Communicator, len(configs))
	var all errgroup.Group
	for i, c := range configs {
		all.Go(func() (err error) {
			ends[i], err = Join(ctx, c, backend(c.Rank))
			return err
		})
	}
	err := all.Wait()
	if err == nil {
		return ends, nil
	}
	for _, e := range ends {
		if e != nil {
			_ = e.Close() // the world does not come about
		}
	}
	return nil, err
}

// Local makes a world whose ranks are goroutines of this process, each with a way of
// its own.
func Local(ctx context.Context, size int, backend func(rank int) kernels.Backend, o comm.Options, way func() (Way, error)) ([]comm.Communicator, error) {
	if size < 1 {
		return nil, fmt.Errorf("comm: world of %d ranks: want at least 1", size)
	}
	configs, err := Listen(size, func() ([]Way, error) {
		w, err := way()
		return []Way{w}, err
	})
	if err != nil {
		return nil, err
	}
	run := fmt.Sprintf("local-%d", time.Now().UnixNano())
	for r := range configs {
		c := &configs[r]
		c.Rank, c.Size, c.Coordinator, c.Run, c.Options = r, size, configs[0].Addr(), run, o
	}
	return JoinAll(ctx, configs, backend)
}

// Listen begins the configurations of n ranks by where each of them listens: of all, or
// of none.
func Listen(n int, ways func() ([]Way, error)) ([]Config, error) {
	configs := make([]Config, n)
	for i := range configs {
		w, err := ways()
		if err != nil {
			Close(configs[:i])
			return nil, err
		}
		configs[i].Ways = w
	}
	return configs, nil
}

// Close ends the listening of ranks that do not join after all.
func Close(configs []Config) {
	for _, c := range configs {
		c.close()
	}
}

// world joins and opens the group of all ranks.
func (n *node) world(ctx context.Context) (comm.Communicator, error) {
	if err := n.join(ctx); err != nil {
		n.forsake()
		return nil, err
	}
	ranks := make([]int, n.cfg.Size)
	for r := range ranks {
		ranks[r] = r
	}
	return newEnd(n, worldID, ranks, n.cfg.Rank), nil
}

// forsake closes what there is of a node whose world does not come about.
func (n *node) forsake() {
	n.cfg.close()
	n.shut()
	if n.hub != nil {
		n.hub.forsake()
	}
}
