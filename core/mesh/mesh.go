// Package mesh holds a rank's communicators on the axes data, pipeline and
// tensor parallel. A mesh is a value passed down, never a global.
package mesh

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
)

// Mesh is one rank's place with its communicators. Groups of one rank exist
// too, so callers need no special case.
type Mesh struct {
	names.Dims
	At         names.Coord
	World      comm.Communicator
	DP, PP, TP comm.Communicator
	// Overlap duplicates DP for operations that run beside the computation.
	Overlap comm.Communicator
	// KV joins the tensor-parallel ranks that hold copies of one KV head.
	KV comm.Communicator
}

// New splits the world into the groups of d. kvReplicas is how many
// tensor-parallel neighbours hold the same KV head (1: no copies). All ranks
// call it together.
func New(ctx context.Context, world comm.Communicator, d names.Dims, kvReplicas int) (*Mesh, error) {
	if d.World() != world.Size() {
		return nil, fmt.Errorf("mesh dp=%d pp=%d tp=%d: needs %d ranks, the world has %d", d.DP, d.PP, d.TP, d.World(), world.Size())
	}
	if kvReplicas < 1 || d.TP%kvReplicas != 0 {
		return nil, fmt.Errorf("mesh: %d copies of a KV head: must divide tp=%d", kvReplicas, d.TP)
	}
	m := &Mesh{Dims: d, At: d.Coord(world.Rank()), World: world}
	outer := m.At.DP*d.PP + m.At.PP
	for _, g := range []struct {
		dst        *comm.Communicator
		axis       names.Axis
		color, key int
	}{
		{&m.DP, names.DP, m.At.PP*d.TP + m.At.TP, m.At.DP},
		{&m.Overlap, names.DP, m.At.PP*d.TP + m.At.TP, m.At.DP},
		{&m.PP, names.PP, m.At.DP*d.TP + m.At.TP, m.At.PP},
		{&m.TP, names.TP, outer, m.At.TP},
		{&m.KV, names.KV, outer*d.TP + m.At.TP/kvReplicas, m.At.TP},
	} {
		c, err := world.Split(comm.WithLabel(ctx, comm.Label{Group: names.World, Tensor: string(g.axis), Step: -1}), g.color, g.key)
		if err != nil {
			return nil, fmt.Errorf("mesh: group %s: %w", g.axis, err)
		}
		*g.dst = c
	}
	return m, nil
}
