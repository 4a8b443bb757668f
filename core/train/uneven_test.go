package train_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// worlds are how ranks that are goroutines reach each other.
func worlds() map[string]comm.World {
	return map[string]comm.World{"local": nil, "tcp": tcp.Local}
}

// Ten sequences dealt to four ranks give the last ones fewer: all take every step
// (horovod/horovod#2640).
func TestUnevenSharesEndTogether(t *testing.T) {
	for name, world := range worlds() {
		cfg := small(t, "nano", "dp=4")
		cfg.Sequences, cfg.Steps = 10, 3
		parts := plain()
		parts.World = world
		if out := outcome(t, cfg, parts); len(out.Loss) != cfg.Steps {
			t.Errorf("%s: %d losses of %d steps", name, len(out.Loss), cfg.Steps)
		}
	}
}

// A rank that believes in fewer steps than the others is named, whatever the deadline,
// before anybody waits for it.
func TestRankThatEndsEarlyIsNamed(t *testing.T) {
	for name, world := range worlds() {
		for _, plan := range []string{"dp=4", "dp=4,zero=3"} {
			cfg := small(t, "nano", plan)
			cfg.Sequences, cfg.Steps = 10, 3
			parts := plain()
			parts.World, parts.Deadline = world, time.Hour
			parts.Config = func(rank int, c spec.Config) spec.Config {
				if rank == 3 {
					c.Steps--
				}
				return c
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			begun := time.Now()
			_, err := launch.Local(ctx, cfg, data.Default(), parts)
			stop()
			says(t, err, "step 2", "rank 3")
			if failed := (*comm.Error)(nil); !errors.As(err, &failed) || failed.Peer != 3 || time.Since(begun) > 20*time.Second {
				t.Errorf("%s %s: after %v: %v", name, plan, time.Since(begun), err)
			}
		}
	}
}
