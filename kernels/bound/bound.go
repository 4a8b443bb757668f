// Package bound is a backend that knows how wrong it may be: every element
// carries its canonical float32 value, the value of the same program in float64,
// and a bound on the distance between the two.
//
// # What a bound says
//
// The exact program is the one that runs on the exact inputs in real numbers;
// the float64 instance of kernels/ref stands for it. An evaluation is any run of
// the program in float32: each written operation rounds once, or is fused with
// the next; a sum may be taken in any order and any grouping; exp and log are
// within 2 ulp (the canonical ones are within 0.87). With x the exact value of an
// element and e its bound, every evaluation has a value within e of x. So the
// bounds hold for every plan, for every backend whose operations round to
// nearest, and for any order in which tokens are added.
//
// Each kernel turns the bounds of its operands into those of its results: what
// an error e of an operand does to the exact result, plus what the kernel's own
// roundings add, at most u = 2^-24 of a magnitude each, where the magnitudes are
// those computed, not guessed. A sum of n products of any order is off by at most
// gamma_n = n*u/(1-n*u) of the sum of their magnitudes (Higham, Accuracy and
// Stability of Numerical Algorithms, section 3.1). Results near the subnormal
// range add the spacing there.
//
// A bound is +Inf where nothing can be said: where a denominator may vanish, a
// value may exceed float32, or an optimizer step was taken.
package bound

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Backend is a kernels.Backend of element type float32 with a bound per element.
// It is not safe for concurrent use of the same buffers.
type Backend struct {
	narrow, wide kernels.Backend // float32 and float64
	given        bool            // results per token are exact as they are
}

// New makes a backend over the float32 and float64 instances of kernels/ref.
func New() *Backend {
	return &Backend{narrow: ref.New[float32](), wide: ref.New[float64]()}
}

// NewSums makes a backend that bounds sums over tokens alone. What a kernel
// computes token by token it takes as given: the float32 values are the exact
// ones, without error. That is how things stand between plans whose ranks all
// compute canonically and differ only in who adds which tokens' gradients when:
// their activations have the same bits. The exact program is then the exact sum
// of the terms, and its bound holds for any order and any grouping of them.
//
// The sums over tokens are those of MatMulTN, ColumnSum, EmbeddingGrad and the
// gradient of RMSNormGrad's weight; Add, Scale and Reduce combine them.
func NewSums() *Backend {
	b := New()
	b.given = true
	return b
}

// buffer is memory of a Backend: the same elements three times.
type buffer struct {
	narrow, wide kernels.Buffer
	bound        []float64
}

// Len is the capacity in elements.
func (b *buffer) Len() int { return len(b.bound) }

// Name is "bound".
func (b *Backend) Name() string { return "bound" }

// Alloc returns zeros, which are exact.
func (b *Backend) Alloc(n int) (kernels.Buffer, error) {
	narrow, err := b.narrow.Alloc(n)
	if err != nil {
		return nil, fmt.Errorf("bound: %w", err)
	}
	wide, err := b.wide.Alloc(n)
	if err != nil {
		b.narrow.Free(narrow)
		return nil, fmt.Errorf("bound: %w", err)
	}
	return &buffer{narrow: narrow, wide: wide, bound: make([]float64, n)}, nil
}

// Free gives the memory back; nil is let through.
func (b *Backend) Free(x kernels.Buffer) {
	if x == nil {
		return
	}
	o := own(x)
	b.narrow.Free(o.narrow)
	b.wide.Free(o.wide)
}

// Write copies src into dst; the elements are exact.
func (b *Backend) Write(dst kernels.Tensor, src []float32) {
	b.narrow.Write(narrow(dst), src)
	exact := make([]float64, len(src))
	for i, x := range src {
		exact[i] = float64(x)
	}
	b.wide.WriteWide(wide(dst), exact)
	b.setBounds(dst, make([]float64, len(src)))
}

// WriteWide copies src into dst. The exact program reads src itself, so the
// bound of an element is what rounding it to float32 loses.
func (b *Backend) WriteWide(dst kernels.Tensor, src []float64) {
	b.narrow.WriteWide(narrow(dst), src)
	b.wide.WriteWide(wide(dst), src)
	e := make([]float64, len(src))
	for i, x := range src {
		e[i] = scalar(x).e
	}
	b.perToken(dst, e)
}

// Read copies the float32 values.
func (b *Backend) Read(dst []float32, src kernels.Tensor) error {
	return b.narrow.Read(dst, narrow(src))
}

// ReadWide copies the float32 values; Exact has those of the float64 program.
func (b *Backend) ReadWide(dst []float64, src kernels.Tensor) error {
	return b.narrow.ReadWide(dst, narrow(src))
}

// Host is always false: an element is three numbers, which change together.
func (*Backend) Host(kernels.Tensor) ([]float32, bool) { return nil, false }

// Span tells where the float32 values lie.
func (b *Backend) Span(t kernels.Tensor) kernels.Span { return b.narrow.Span(narrow(t)) }

// Sync has nothing to wait for.
func (b *Backend) Sync() error { return b.narrow.Sync() }

// Bounds is the bound of each element of t, row by row, in the unit of the
// element.
func (b *Backend) Bounds(t kernels.Tensor) []float64 {
	from := own(t.Buf).bound
	out := make([]float64, 0, t.Len())
	for i := range t.Rows {
		lo := t.Off + i*t.Stride
		out = append(out, from[lo:lo+t.Cols]...)
	}
	return out
}

// Exact is the value of each element of t, row by row, as the float64 program
// computes it.
func (b *Backend) Exact(t kernels.Tensor) []float64 {
	out := make([]float64, 0, t.Len())
	row := make([]float64, t.Cols)
	for i := range t.Rows {
		if err := b.wide.ReadWide(row, wide(t.RowRange(i, i+1))); err != nil {
			panic("kernels: bound: plain memory cannot fail: " + err.Error())
		}
		out = append(out, row...)
	}
	return out
}

// Widen says that the elements of t are inputs known only to within e (one bound
// per element, row by row): what is computed from them holds for every value
// within e. It panics unless there is a bound per element.
func (b *Backend) Widen(t kernels.Tensor, e []float64) {
	if len(e) != t.Len() {
		panic(fmt.Sprintf("kernels: Widen: %d bounds for %s", len(e), t))
	}
	b.setBounds(t, e)
}

func (b *Backend) setBounds(t kernels.Tensor, e []float64) {
	to := own(t.Buf).bound
	for i := range t.Rows {
		copy(to[t.Off+i*t.Stride:], e[i*t.Cols:(i+1)*t.Cols])
	}
}

// own is x as this backend's buffer.
func own(x kernels.Buffer) *buffer {
	b, ok := x.(*buffer)
	if !ok {
		panic(fmt.Sprintf("kernels: bound: buffer of another backend: %T", x))
	}
	return b
}

// view is t within one of the planes; the absent tensor stays absent.
type view func(t kernels.Tensor) kernels.Tensor

func narrow(t kernels.Tensor) kernels.Tensor {
	if !t.Absent() {
		t.Buf = own(t.Buf).narrow
	}
	return t
}

func wide(t kernels.Tensor) kernels.Tensor {
	if !t.Absent() {
		t.Buf = own(t.Buf).wide
	}
	return t
}

// both runs a kernel in float32 and in float64.
func (b *Backend) both(kernel func(k kernels.Kernels, v view)) {
	kernel(b.narrow, narrow)
	kernel(b.wide, wide)
}

// operand is a copy of what a kernel reads: exact values and bounds, row by row.
type operand struct {
	rows, cols int
	x, e       []float64
}

func (b *Backend) load(t kernels.Tensor) operand {
	return operand{t.Rows, t.Cols, b.Exact(t), b.Bounds(t)}
}

// at is element i with its bound.
func (o operand) at(i int) value { return value{o.x[i], o.e[i]} }

// row is row i as an operand of one row.
func (o operand) row(i int) operand {
	lo, hi := i*o.cols, (i+1)*o.cols
	return operand{1, o.cols, o.x[lo:hi], o.e[lo:hi]}
}

// slack covers the roundings of the bounds' own float64 arithmetic and of the
// float64 program: sums of up to 2^30 terms.
const slack = 1 + 0x1p-22

// perToken sets the bounds of a result that is no sum over tokens.
func (b *Backend) perToken(t kernels.Tensor, e []float64) {
	if !b.given {
		b.store(t, e)
		return
	}
	row := make([]float64, t.Cols)
	for i := range t.Rows {
		r := t.RowRange(i, i+1)
		if err := b.narrow.ReadWide(row, narrow(r)); err != nil {
			panic("kernels: bound: plain memory cannot fail: " + err.Error())
		}
		b.wide.WriteWide(wide(r), row)
	}
	clear(e)
	b.setBounds(t, e)
}

// store sets the bounds of a result whose float64 values are in place. A value
// that may leave the range of float32 has no bound.
func (b *Backend) store(t kernels.Tensor, e []float64) {
	for i, x := range b.Exact(t) {
		e[i] = float64(e[i] * slack)
		if !(math.Abs(x)+e[i] <= math.MaxFloat32) {
			e[i] = math.Inf(1)
		}
	}
	b.setBounds(t, e)
}
