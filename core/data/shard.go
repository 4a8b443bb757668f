package data

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/shard"
)

// Shard lists the positions of a step of perStep sequences that a logical
// worker takes: Index, Index+Size, ... (the interleaving rule). Shards of the
// workers are disjoint and cover the step; workers beyond perStep have none.
// A worker outside its group, which would take others' sequences, is an error.
func Shard(perStep int, worker shard.Part) ([]int, error) {
	if err := worker.Check(); err != nil {
		return nil, fmt.Errorf("data shard: worker of %d: %w", worker.Size, err)
	}
	if perStep < 0 {
		return nil, fmt.Errorf("data shard: %d sequences per step: must not be negative", perStep)
	}
	return worker.Interleave(perStep), nil
}
