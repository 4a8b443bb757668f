package kernels

import "fmt"

// Buffer is memory of one backend; only that backend looks inside.
type Buffer interface {
	// Len is the capacity in elements.
	Len() int
}

// Tensor is a view of a Buffer: Rows x Cols elements, row-major, with Stride
// elements from the start of one row to the next. The zero value is the absent
// tensor. Views never copy.
type Tensor struct {
	Buf                     Buffer
	Off, Rows, Cols, Stride int
}

// Flat is the whole of b as one row.
func Flat(b Buffer) Tensor {
	n := b.Len()
	return Tensor{Buf: b, Rows: 1, Cols: n, Stride: n}
}

// Absent reports whether t is the zero value.
func (t Tensor) Absent() bool { return t.Buf == nil }

// Len is the number of elements.
func (t Tensor) Len() int { return t.Rows * t.Cols }

// Contiguous reports whether the elements lie side by side.
func (t Tensor) Contiguous() bool { return t.Stride == t.Cols || t.Rows <= 1 || t.Cols == 0 }

// Range is elements [lo, hi) of a contiguous tensor as one row.
func (t Tensor) Range(lo, hi int) Tensor {
	if !t.Contiguous() || lo < 0 || hi < lo || hi > t.Len() {
		panic(fmt.Sprintf("kernels: range [%d,%d) of %s", lo, hi, t))
	}
	return Tensor{Buf: t.Buf, Off: t.Off + lo, Rows: 1, Cols: hi - lo, Stride: hi - lo}
}

// As is a contiguous tensor seen as rows x cols; rows*cols may be less than
// Len, then it is the leading part.
func (t Tensor) As(rows, cols int) Tensor {
	if !t.Contiguous() || rows < 0 || cols < 0 || rows*cols > t.Len() {
		panic(fmt.Sprintf("kernels: %s as %dx%d", t, rows, cols))
	}
	return Tensor{Buf: t.Buf, Off: t.Off, Rows: rows, Cols: cols, Stride: cols}
}

// RowRange is rows [lo, hi).
func (t Tensor) RowRange(lo, hi int) Tensor {
	if lo < 0 || hi < lo || hi > t.Rows {
		panic(fmt.Sprintf("kernels: rows [%d,%d) of %s", lo, hi, t))
	}
	t.Off += lo * t.Stride
	t.Rows = hi - lo
	return t
}

// ColRange is columns [lo, hi); the result is contiguous only if it is all of them.
func (t Tensor) ColRange(lo, hi int) Tensor {
	if lo < 0 || hi < lo || hi > t.Cols {
		panic(fmt.Sprintf("kernels: columns [%d,%d) of %s", lo, hi, t))
	}
	t.Off += lo
	t.Cols = hi - lo
	return t
}

// String gives the shape, for messages.
func (t Tensor) String() string {
	if t.Absent() {
		return "tensor(absent)"
	}
	return fmt.Sprintf("tensor(%dx%d stride %d at %d of %d)", t.Rows, t.Cols, t.Stride, t.Off, t.Buf.Len())
}

// Span is where a tensor lies in memory: half-open addresses within one space
// (a process's memory, or a device's). Two tensors of one space share memory
// exactly if their spans overlap. A backend names its space within the process;
// whoever compares spans of several processes asks which, as their addresses may
// coincide.
type Span struct {
	Space  string `json:"space,omitempty"`
	Lo, Hi uint64
}

// Overlaps reports whether s and o share at least one byte.
func (s Span) Overlaps(o Span) bool {
	return s.Space == o.Space && max(s.Lo, o.Lo) < min(s.Hi, o.Hi)
}

// Pool is memory of this process, other than the run-time's, that a backend can allocate
// from: such as other processes can read. Several goroutines may use it at once.
type Pool interface {
	// Take gives n zeros; nil where they are better allocated elsewhere.
	Take(n int) []float32
	// Give takes back all of what Take gave. Nobody may use it any more.
	Give(x []float32)
}

// Memory allocates and moves elements. Alloc returns zeroed memory of n
// elements; its error names the size. Lengths of slices must equal Len of the
// tensor.
type Memory interface {
	Alloc(n int) (Buffer, error)
	Free(Buffer)
	// Write copies src into dst.
	Write(dst Tensor, src []float32)
	// WriteWide copies src into dst, each element rounded once to the element type.
	WriteWide(dst Tensor, src []float64)
	// Read copies src into dst (rounded to float32 by a wider backend) after all
	// earlier kernels are done.
	Read(dst []float32, src Tensor) error
	// ReadWide is Read without the rounding.
	ReadWide(dst []float64, src Tensor) error
	// Host is the elements of t themselves, where t is contiguous and they are
	// float32 in the memory of this process: what is written to them is written to
	// t, and what earlier kernels compute is in them after Sync. Otherwise, and
	// where a write would bypass what the backend keeps beside them, ok is false.
	Host(t Tensor) (x []float32, ok bool)
	// Span tells where t lies.
	Span(t Tensor) Span
	// Sync waits for all earlier kernels and returns the first fault.
	Sync() error
}
