package names

// Axis names the ranks that an operation runs over: those that share a rank's
// coordinates but for one axis of the mesh, or one of the two groups that are no
// axis.
type Axis string

// The axes of the mesh, and the other groups.
const (
	DP    Axis = "dp"    // data parallel
	PP    Axis = "pp"    // pipeline parallel
	TP    Axis = "tp"    // tensor parallel
	World Axis = "world" // all ranks
	KV    Axis = "kv"    // the tensor-parallel neighbours that hold copies of one KV head
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

// Group lists the ranks that share rank's coordinates but for the named axis,
// ascending on it; for World all ranks. Sizes do not tell who copies a KV head:
// for KV, and for a name that is no axis, nobody.
func (d Dims) Group(rank int, axis Axis) []int {
	at := d.Coord(rank)
	var out []int
	switch axis {
	case DP:
		for at.DP = range d.DP {
			out = append(out, d.Rank(at))
		}
	case PP:
		for at.PP = range d.PP {
			out = append(out, d.Rank(at))
		}
	case TP:
		for at.TP = range d.TP {
			out = append(out, d.Rank(at))
		}
	case World:
		for r := range d.World() {
			out = append(out, r)
		}
	}
	return out
}
