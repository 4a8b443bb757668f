package ref

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/kernels"
)

// matrix is a bounds-checked view: rows x cols, row i from data[i*stride].
type matrix[T Float] struct {
	data               []T
	rows, cols, stride int
}

// row is row i, which cannot grow into the next one.
func (m matrix[T]) row(i int) []T {
	if m.cols == 0 {
		return nil
	}
	lo := i * m.stride
	return m.data[lo : lo+m.cols : lo+m.cols]
}

// misuse panics: a mistake of the programmer.
func misuse(kernel, format string, args ...any) {
	panic("kernels: " + kernel + ": " + fmt.Sprintf(format, args...))
}

// mustEqual refuses two sizes that have to agree.
func mustEqual(kernel, what string, got, want int) {
	if got != want {
		misuse(kernel, "%s is %d, want %d", what, got, want)
	}
}

func ownBuffer[T Float](buf kernels.Buffer) *buffer[T] {
	own, ok := buf.(*buffer[T])
	if !ok {
		panic(fmt.Sprintf("kernels: buffer of another backend (%T)", buf))
	}
	return own
}

// view checks that t lies inside its buffer and that its rows do not overlap.
func view[T Float](kernel string, t kernels.Tensor) matrix[T] {
	if t.Buf == nil {
		misuse(kernel, "absent tensor")
	}
	data := ownBuffer[T](t.Buf).data
	if t.Rows < 0 || t.Cols < 0 || t.Off < 0 {
		misuse(kernel, "%s", t)
	}
	m := matrix[T]{rows: t.Rows, cols: t.Cols, stride: t.Stride}
	if t.Rows == 0 || t.Cols == 0 {
		return m
	}
	if t.Rows == 1 {
		m.stride = t.Cols
	}
	end := t.Off + (t.Rows-1)*m.stride + t.Cols
	if m.stride < t.Cols || end > len(data) || end < t.Off {
		misuse(kernel, "%s lies outside its buffer or its rows overlap", t)
	}
	m.data = data[t.Off:end:end]
	return m
}

// flat is the elements of a contiguous tensor.
func flat[T Float](kernel string, t kernels.Tensor) []T {
	if !t.Contiguous() {
		misuse(kernel, "%s is not contiguous", t)
	}
	return view[T](kernel, t).data
}

// sized is flat with a fixed length.
func sized[T Float](kernel string, t kernels.Tensor, n int) []T {
	x := flat[T](kernel, t)
	if len(x) != n {
		misuse(kernel, "%s, want %d elements", t, n)
	}
	return x
}

// sizedOrAbsent is sized, or nil for the absent tensor.
func sizedOrAbsent[T Float](kernel string, t kernels.Tensor, n int) []T {
	if t.Absent() {
		return nil
	}
	return sized[T](kernel, t, n)
}

// checkGroups refuses bounds that do not cut [0, k]; nil becomes one group.
func checkGroups(kernel string, groups []int, k int) []int {
	if groups == nil {
		return []int{0, k}
	}
	n := len(groups) - 1
	if n < 1 || groups[0] != 0 || groups[n] != k || !slices.IsSorted(groups) {
		misuse(kernel, "groups %v, want ascending bounds from 0 to %d", groups, k)
	}
	return groups
}
