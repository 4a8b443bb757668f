package shard

import "fmt"

// Axis names an axis of a row-major matrix.
type Axis uint8

// The axes.
const (
	Rows    Axis = 1 + iota // a slice of rows is one run of elements
	Columns                 // a slice of columns has a run in every row
)

// MatrixShard is a contiguous slice of the rows or of the columns of a
// row-major matrix. Which of the two a parallel layer holds depends on how its
// weights are stored:
//
//	                 Y = X*W, W is [in, out]   Y = X*W^T, W is [out, in] (this module)
//	column parallel  slice of columns          slice of rows     (outputs are split)
//	row parallel     slice of rows             slice of columns  (inputs are split)
//
// ColumnShard and RowShard name the slice, ColumnParallel and RowParallel the
// layer. A literal can name any range: that is how to ask for an uneven split.
type MatrixShard struct {
	Rows, Cols int // of the whole matrix
	Axis       Axis
	Range      // of rows or columns
}

// ColumnShard is p's slice of the columns; p.Size must divide their number.
func ColumnShard(rows, cols int, p Part) (MatrixShard, error) {
	return evenShard(rows, cols, Columns, p)
}

// RowShard is p's slice of the rows; p.Size must divide their number.
func RowShard(rows, cols int, p Part) (MatrixShard, error) {
	return evenShard(rows, cols, Rows, p)
}

// ColumnParallel is p's weights of a column-parallel layer, stored [out, in]:
// its outputs are the slice of the dense outputs. p.Size must divide out.
func ColumnParallel(in, out int, p Part) (MatrixShard, error) { return RowShard(out, in, p) }

// RowParallel is p's weights of a row-parallel layer, stored [out, in]: the sum
// of all parts' outputs is the dense output. p.Size must divide in.
func RowParallel(in, out int, p Part) (MatrixShard, error) { return ColumnShard(out, in, p) }

func evenShard(rows, cols int, axis Axis, p Part) (MatrixShard, error) {
	if err := p.Check(); err != nil {
		return MatrixShard{}, fmt.Errorf("matrix shard: %w", err)
	}
	n, what := rows, "rows"
	if axis == Columns {
		n, what = cols, "columns"
	}
	if n%p.Size != 0 {
		return MatrixShard{}, fmt.Errorf("matrix shard: %d %s: must be a multiple of %d", n, what, p.Size)
	}
	s := MatrixShard{rows, cols, axis, p.Of(n)}
	return s, s.Check()
}

// Check refuses shapes and ranges that do not exist.
func (s MatrixShard) Check() error {
	var c checked
	if s.Rows < 0 || s.Cols < 0 {
		return fmt.Errorf("matrix shard: shape %dx%d: must not be negative", s.Rows, s.Cols)
	}
	n := s.Rows
	switch s.Axis {
	case Rows:
	case Columns:
		n = s.Cols
	default:
		return fmt.Errorf("matrix shard: axis %d: must be rows or columns", s.Axis)
	}
	if s.Lo < 0 || s.Hi < s.Lo || s.Hi > n {
		return fmt.Errorf("matrix shard: [%d,%d): must lie in [0,%d)", s.Lo, s.Hi, n)
	}
	if product := c.mul(uint64(s.Rows), uint64(s.Cols)); c.overflow || product>>62 != 0 {
		return fmt.Errorf("matrix shard: shape %dx%d: %w", s.Rows, s.Cols, ErrOverflow)
	}
	return nil
}

// Shape is the shard's shape, itself row-major.
func (s MatrixShard) Shape() (rows, cols int) {
	if s.Axis == Rows {
		return s.Len(), s.Cols
	}
	return s.Rows, s.Len()
}

// Elements is the shard's number of elements.
func (s MatrixShard) Elements() int {
	rows, cols := s.Shape()
	return rows * cols
}

// ExtractShard copies the shard out of the whole matrix, of Rows*Cols elements.
func ExtractShard[T any](s MatrixShard, full []T) ([]T, error) {
	if err := s.checkLengths(len(full), s.Elements()); err != nil {
		return nil, err
	}
	out := make([]T, 0, s.Elements())
	s.runs(func(r Range) { out = append(out, full[r.Lo:r.Hi]...) })
	return out, nil
}

// InsertShard copies the shard's elements to their place in the whole matrix:
// the inverse of ExtractShard.
func InsertShard[T any](s MatrixShard, full, slice []T) error {
	if err := s.checkLengths(len(full), len(slice)); err != nil {
		return err
	}
	s.runs(func(r Range) { slice = slice[copy(full[r.Lo:r.Hi], slice):] })
	return nil
}

func (s MatrixShard) checkLengths(full, slice int) error {
	if err := s.Check(); err != nil {
		return err
	}
	if full != s.Rows*s.Cols {
		return fmt.Errorf("matrix shard: %d elements for a matrix of %dx%d", full, s.Rows, s.Cols)
	}
	if slice != s.Elements() {
		rows, cols := s.Shape()
		return fmt.Errorf("matrix shard: %d elements for a shard of %dx%d", slice, rows, cols)
	}
	return nil
}

// runs calls f for the shard's runs of elements in the whole matrix, in order.
func (s MatrixShard) runs(f func(r Range)) {
	if s.Axis == Rows {
		f(Range{s.Lo * s.Cols, s.Hi * s.Cols})
		return
	}
	for row := range s.Rows {
		f(s.Shift(row * s.Cols))
	}
}
