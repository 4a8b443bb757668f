package kerneltest_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// mutant is a backend with one deliberate defect.
type mutant struct {
	part, defect string
	backend      kernels.Backend
}

// TestMutants: the cases of level 1 catch every defect by the kernel that has it.
func TestMutants(t *testing.T) {
	b := kernels.Backend(ref.New[float32]())
	caught := map[string]bool{}
	for _, m := range slices.Concat(memoryMutants(b), productMutants(b), vectorMutants(b), blockMutants(b), lossMutants(b), digestMutants(b)) {
		t.Run(m.part+"/"+strings.ReplaceAll(m.defect, " ", "_"), func(t *testing.T) {
			var f failures
			ran := kerneltest.Check(&f, m.backend, kerneltest.Options{Only: []string{m.part}, Level: 1, Failures: 1})
			if len(f) == 0 {
				t.Fatalf("%s, %s: not caught by %d cases", m.part, m.defect, ran)
			}
			caught[m.part] = true
			t.Logf("%-13s %-42s case %3d: %s", m.part, m.defect, ran, strings.SplitN(f[0], "\n", 2)[0])
		})
	}
	for _, part := range append(methodsOf(reflect.TypeFor[kernels.Kernels]()), "Memory") {
		if !caught[part] {
			t.Errorf("%s has no mutant", part)
		}
	}
}

// methodsOf lists the methods of an interface.
func methodsOf(t reflect.Type) []string {
	var out []string
	for i := range t.NumMethod() {
		out = append(out, t.Method(i).Name)
	}
	return out
}

// get reads the elements of t, which may be strided, row by row.
func get(b kernels.Memory, t kernels.Tensor) []float32 {
	out := make([]float32, 0, t.Len())
	for r := range t.Rows {
		row := make([]float32, t.Cols)
		if err := b.Read(row, t.RowRange(r, r+1)); err != nil {
			panic(err)
		}
		out = append(out, row...)
	}
	return out
}

// put writes them.
func put(b kernels.Memory, t kernels.Tensor, x []float32) {
	for r := range t.Rows {
		b.Write(t.RowRange(r, r+1), x[r*t.Cols:(r+1)*t.Cols])
	}
}

// last is the last element of a tensor that has one.
func last(t kernels.Tensor) kernels.Tensor {
	return t.RowRange(t.Rows-1, t.Rows).ColRange(t.Cols-1, t.Cols)
}

// beyond is the element after the last one.
func beyond(t kernels.Tensor) kernels.Tensor {
	return kernels.Tensor{Buf: t.Buf, Off: t.Off + max(t.Rows-1, 0)*t.Stride + t.Cols, Rows: 1, Cols: 1, Stride: 1}
}

// mulAdd is what a backend without fma does: two roundings.
func mulAdd(a, b, c float32) float32 { return float32(a*b) + c }

// viaFloat64 rounds to float64 and then to float32.
func viaFloat64(a, b, c float32) float32 { return float32(float64(float64(a)*float64(b)) + float64(c)) }

// tree is the canonical sum of xs, which it overwrites.
func tree(xs []float32) float32 {
	for d := 1; d < len(xs); d *= 2 {
		for i := 0; i+d < len(xs); i += 2 * d {
			xs[i] += xs[i+d]
		}
	}
	return xs[0]
}

// leftFold adds in order.
func leftFold(xs []float32) float32 {
	s := xs[0]
	for _, x := range xs[1:] {
		s += x
	}
	return s
}

// wide computes in float64 and rounds at the end.
type wide struct{ kernels.Backend }

// over runs f on a float64 backend over copies of ts and copies those back.
func (w wide) over(f func(k kernels.Kernels, t []kernels.Tensor), ts ...kernels.Tensor) {
	o := ref.New[float64]()
	up := make([]kernels.Tensor, len(ts))
	for i, t := range ts {
		if t.Absent() {
			continue
		}
		if j := slices.Index(ts[:i], t); j >= 0 {
			up[i] = up[j] // aliases stay aliases
			continue
		}
		buf, err := o.Alloc(t.Len())
		if err != nil {
			panic(err)
		}
		up[i] = kernels.Flat(buf).As(t.Rows, t.Cols)
		o.Write(up[i], get(w, t))
	}
	f(o, up)
	for i, t := range ts {
		if !t.Absent() {
			put(w, t, get(o, up[i]))
		}
	}
}

type (
	dirtyAlloc  struct{ kernels.Backend }
	shortWrite  struct{ kernels.Backend }
	lateWrite   struct{ kernels.Backend }
	flushWide   struct{ kernels.Backend }
	truncWide   struct{ kernels.Backend }
	blindSpan   struct{ kernels.Backend }
	hugeAlloc   struct{ kernels.Backend }
	looseShapes struct{ kernels.Backend }
)

// memoryMutants are defects of Alloc, Write, WriteWide, ReadWide and Span, and a
// backend that does not check shapes.
func memoryMutants(b kernels.Backend) []mutant {
	return append(hostMutants(b), []mutant{
		{"Memory", "new memory is not zeroed", dirtyAlloc{b}},
		{"Memory", "impossible sizes panic", hugeAlloc{b}},
		{"Memory", "Write leaves out the last element", shortWrite{b}},
		{"Memory", "Write goes one element too far", lateWrite{b}},
		{"Memory", "ReadWide flushes subnormals", flushWide{b}},
		{"Memory", "WriteWide truncates", truncWide{b}},
		{"Memory", "Span ignores the offset of a view", blindSpan{b}},
		{"Misuse", "Add takes the shorter length", looseShapes{b}},
	}...)
}

func (m dirtyAlloc) Alloc(n int) (kernels.Buffer, error) {
	buf, err := m.Backend.Alloc(n)
	if err == nil && n > 100 {
		m.Fill(last(kernels.Flat(buf)), 1)
	}
	return buf, err
}

func (m hugeAlloc) Alloc(n int) (kernels.Buffer, error) {
	_ = make([]byte, n)
	return m.Backend.Alloc(n)
}

func (m shortWrite) Write(dst kernels.Tensor, src []float32) {
	if n := len(src); n > 64 {
		m.Backend.Write(dst.Range(0, n-1), src[:n-1])
		return
	}
	m.Backend.Write(dst, src)
}

func (m lateWrite) Write(dst kernels.Tensor, src []float32) {
	m.Backend.Write(dst, src)
	if after := beyond(dst); after.Off < dst.Buf.Len() && len(src) > 0 {
		m.Backend.Write(after, src[:1])
	}
}

func (m flushWide) ReadWide(dst []float64, src kernels.Tensor) error {
	err := m.Backend.ReadWide(dst, src)
	for i, v := range dst {
		if v > -0x1p-126 && v < 0x1p-126 {
			dst[i] = 0
		}
	}
	return err
}

func (m truncWide) WriteWide(dst kernels.Tensor, src []float64) {
	x := make([]float32, len(src))
	for i, v := range src {
		x[i] = truncated(v)
	}
	m.Write(dst, x)
}

func (m blindSpan) Span(t kernels.Tensor) kernels.Span {
	t.Off = 0
	return m.Backend.Span(t)
}

func (m looseShapes) Add(dst, x, y kernels.Tensor) {
	n := min(dst.Len(), x.Len(), y.Len())
	m.Backend.Add(dst.Range(0, n), x.Range(0, n), y.Range(0, n))
}
