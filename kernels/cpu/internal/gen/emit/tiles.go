package emit

import "fmt"

// Tile is the shape of a register tile: rows by vectors.
type Tile struct {
	ISA
	Rows, Vectors int
	// Cols says that A is k-major: the A values of one k lie side by side.
	Cols bool
	// Masked says that only some columns of the last vector exist.
	Masked bool
}

// MostVectors is the width of the widest tiles of an instruction set.
func MostVectors(s ISA) int {
	if s.Wide() {
		return 4
	}
	return 2
}

// MostRows is the highest number of rows of a tile that fits the registers: one
// accumulator per row and vector, the vectors of B, and a broadcast.
func MostRows(s ISA, vectors int, cols bool) int {
	if s.Wide() && cols && vectors < MostVectors(s) {
		return 8
	}
	return 6
}

// Tiles lists the tiles of an instruction set.
func Tiles(s ISA) []Tile {
	var out []Tile
	for _, cols := range []bool{false, true} {
		for vectors := 1; vectors <= MostVectors(s); vectors++ {
			for rows := 1; rows <= MostRows(s, vectors, cols); rows++ {
				out = append(out, Tile{s, rows, vectors, cols, false}, Tile{s, rows, vectors, cols, true})
			}
		}
	}
	return out
}

// Func is the name of the tile's function.
func (t Tile) Func() string {
	kind, mask := "rows", ""
	if t.Cols {
		kind = "cols"
	}
	if t.Masked {
		mask = "Masked"
	}
	return fmt.Sprintf("%s%dx%d%s%s", kind, t.Rows, t.Vectors, mask, t.Name)
}

// PanelVectors lists the widths, in vectors, of the panels of B that have a
// packing of their own.
func PanelVectors(s ISA) []int {
	if s.Wide() {
		return []int{3, 4}
	}
	return []int{2}
}
