// Package mesh arranges ranks on the axes data, pipeline and tensor parallel:
// the arithmetic of coordinates, and the communicators of each axis. A mesh is a
// value passed down, never a global.
package mesh

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
)

// Dims are the sizes of the axes. TP is innermost, DP outermost (Megatron's and
// picotron's grid): rank = (dp*PP + pp)*TP + tp.
type Dims struct{ DP, PP, TP int }

// Coord is a rank's place on the axes.
type Coord struct{ DP, PP, TP int }

// World is the number of ranks.
func (d Dims) World() int { return d.DP * d.PP * d.TP }

// Coord is the place of a rank in [0, World).
func (d Dims) Coord(rank int) Coord {
	return Coord{DP: rank / (d.PP * d.TP), PP: rank / d.TP % d.PP, TP: rank % d.TP}
}

// Rank is the inverse of Coord.
func (d Dims) Rank(c Coord) int { return (c.DP*d.PP+c.PP)*d.TP + c.TP }

// Group lists the ranks that share rank's coordinates but for the named axis
// ("dp", "pp" or "tp"), ascending on it.
func (d Dims) Group(rank int, axis string) []int {
	at := d.Coord(rank)
	n, move := d.TP, func(i int) { at.TP = i }
	switch axis {
	case "dp":
		n, move = d.DP, func(i int) { at.DP = i }
	case "pp":
		n, move = d.PP, func(i int) { at.PP = i }
	}
	out := make([]int, n)
	for i := range out {
		move(i)
		out[i] = d.Rank(at)
	}
	return out
}

// Mesh is one rank's place with its communicators. Groups of one rank exist
// too, so callers need no special case.
type Mesh struct {
	Dims
	At         Coord
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
func New(ctx context.Context, world comm.Communicator, d Dims, kvReplicas int) (*Mesh, error) {
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
		name       string
		color, key int
	}{
		{&m.DP, "dp", m.At.PP*d.TP + m.At.TP, m.At.DP},
		{&m.Overlap, "dp", m.At.PP*d.TP + m.At.TP, m.At.DP},
		{&m.PP, "pp", m.At.DP*d.TP + m.At.TP, m.At.PP},
		{&m.TP, "tp", outer, m.At.TP},
		{&m.KV, "kv", outer*d.TP + m.At.TP/kvReplicas, m.At.TP},
	} {
		c, err := world.Split(comm.WithLabel(ctx, comm.Label{Group: "world", Tensor: g.name, Step: -1}), g.color, g.key)
		if err != nil {
			return nil, fmt.Errorf("mesh: group %s: %w", g.name, err)
		}
		*g.dst = c
	}
	return m, nil
}
