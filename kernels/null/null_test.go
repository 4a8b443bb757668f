package null_test

import (
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/null"
)

var _ kernels.Backend = (*null.Backend)(nil)

// mat allocates a rows x cols tensor of b.
func mat(t *testing.T, b *null.Backend, rows, cols int) kernels.Tensor {
	t.Helper()
	buf, err := b.Alloc(rows * cols)
	if err != nil {
		t.Fatal(err)
	}
	return kernels.Flat(buf).As(rows, cols)
}

// TestCounts: every kernel's work equals a number worked out by hand from its
// definition, and a call counts under its own name only.
func TestCounts(t *testing.T) {
	two := []int{0, 1, 7} // two groups of K = 7
	heads := kernels.Heads{Seqs: 2, T: 3, Heads: 4, KVHeads: 2, Dim: 5, KVGroups: 1}
	tests := []struct {
		kernel string
		call   func(b *null.Backend, m func(rows, cols int) kernels.Tensor)
		want   null.Count // Calls is 1 in all
	}{
		{"Fill", func(b *null.Backend, m tensor) { b.Fill(m(3, 4), 1) }, count(0, 0, 12)},
		{"Copy", func(b *null.Backend, m tensor) { b.Copy(m(3, 4), m(3, 4)) }, count(0, 12, 12)},
		{"Add", func(b *null.Backend, m tensor) { b.Add(m(3, 4), m(3, 4), m(3, 4)) }, count(12, 24, 12)},
		{"Scale", func(b *null.Backend, m tensor) { b.Scale(m(3, 4), m(3, 4), 2) }, count(12, 12, 12)},
		{"AddBias", func(b *null.Backend, m tensor) { b.AddBias(m(3, 4), m(1, 4)) }, count(12, 16, 12)},
		{"Residual", func(b *null.Backend, m tensor) { b.Residual(m(3, 4), m(3, 4), m(3, 4), m(1, 4)) }, count(24, 28, 12)},
		{"Residual", func(b *null.Backend, m tensor) { b.Residual(m(3, 4), m(3, 4), m(3, 4), kernels.Tensor{}) }, count(12, 24, 12)},
		{"ColumnSum", func(b *null.Backend, m tensor) { b.ColumnSum(m(1, 4), m(3, 4)) }, count(12, 16, 4)},
		// M 3, N 5, K 7: 2*3*5*7 = 210; 21 + 35 read, 15 written.
		{"MatMulNT", func(b *null.Backend, m tensor) { b.MatMulNT(m(3, 5), m(3, 7), m(5, 7), two) }, count(210, 56, 15)},
		{"MatMulNT", func(b *null.Backend, m tensor) { b.MatMulNT(m(3, 5), m(3, 0), m(5, 0), nil) }, count(0, 0, 15)},
		// A second term of K = 2: 2*3*5*9 = 270; 21+35 + 6+10 read.
		{"MatMulNN", func(b *null.Backend, m tensor) {
			b.MatMulNN(m(3, 5), []kernels.Term{
				{A: m(3, 7), B: m(7, 5), Groups: two}, {A: m(3, 2), B: m(2, 5), Groups: []int{0, 0, 2}}})
		}, count(270, 72, 15)},
		{"MatMulTN", func(b *null.Backend, m tensor) { b.MatMulTN(m(3, 5), m(7, 3), m(7, 5)) }, count(210, 71, 15)},
		// 4*12 + 4*3; x and w read, y and rstd written.
		{"RMSNorm", func(b *null.Backend, m tensor) { b.RMSNorm(m(3, 4), m(1, 3), m(3, 4), m(1, 4), 1e-5) }, count(60, 16, 15)},
		// 9*12 + 3; dy, x, rstd, w, dw read; dx, dw written.
		{"RMSNormGrad", func(b *null.Backend, m tensor) {
			b.RMSNormGrad(m(3, 4), m(1, 4), m(3, 4), m(3, 4), m(1, 3), m(1, 4), kernels.Tensor{})
		}, count(111, 35, 16)},
		{"RMSNormGrad", func(b *null.Backend, m tensor) {
			b.RMSNormGrad(m(3, 4), m(1, 4), m(3, 4), m(3, 4), m(1, 3), m(1, 4), m(3, 4))
		}, count(123, 47, 16)},
		// 5 rows of 2 heads of 4: 20 pairs of 6; the table of 3 positions once each.
		{"Rope", func(b *null.Backend, m tensor) { b.Rope(m(5, 8), m(3, 2), m(3, 2), false) }, count(120, 52, 40)},
		{"Rope", func(b *null.Backend, m tensor) { b.Rope(m(2, 8), m(3, 2), m(3, 2), true) }, count(48, 24, 16)},
		// 2 sequences, 4 heads, 1+2+3 keys: 48 pairs of 4*5+5; q 120, k 60, v 60.
		{"Attention", func(b *null.Backend, m tensor) {
			b.Attention(m(6, 20), m(24, 3), m(6, 20), m(6, 10), m(6, 10), heads)
		}, count(1200, 240, 168)},
		// 48 pairs of 8*5+5; do 120, p 48, q 120, k 60, v 60.
		{"AttentionGrad", func(b *null.Backend, m tensor) {
			b.AttentionGrad(m(6, 20), m(6, 10), m(6, 10), m(6, 20), m(24, 3), m(6, 20), m(6, 10), m(6, 10), heads)
		}, count(2160, 408, 240)},
		{"SwiGLU", func(b *null.Backend, m tensor) { b.SwiGLU(m(3, 4), m(3, 4), m(3, 4)) }, count(60, 24, 12)},
		{"SwiGLUGrad", func(b *null.Backend, m tensor) { b.SwiGLUGrad(m(3, 4), m(3, 4), m(3, 4), m(3, 4), m(3, 4)) }, count(132, 36, 24)},
		// Rows 10..14 are here: tokens 10, 14 and 14 again, not 9, 15 or -1.
		{"Embedding", func(b *null.Backend, m tensor) {
			b.Embedding(m(6, 4), m(5, 4), []int32{10, 14, 14, 9, 15, -1}, 10)
		}, count(12, 12, 24)},
		{"EmbeddingGrad", func(b *null.Backend, m tensor) {
			b.EmbeddingGrad(m(5, 4), m(6, 4), []int32{10, 14, 14, 9, 15, math.MinInt32}, 10)
		}, count(12, 24, 12)},
		{"LogitsMax", func(b *null.Backend, m tensor) { b.LogitsMax(m(1, 3), m(1, 3), m(3, 4), []int32{10, 13, 14}, 10) }, count(2, 12, 6)},
		{"LogitsExpSum", func(b *null.Backend, m tensor) { b.LogitsExpSum(m(1, 3), m(3, 4), m(1, 3), nil) }, count(36, 15, 15)},
		// Two valid rows of 3*4+3.
		{"CrossEntropy", func(b *null.Backend, m tensor) {
			b.CrossEntropy(m(1, 3), m(3, 4), m(1, 3), m(1, 3), m(1, 3), []int32{0, -1, 99}, 0, 0.5)
		}, count(30, 14, 15)},
		{"AdamW", func(b *null.Backend, m tensor) {
			b.AdamW(m(1, 9), m(1, 9), m(1, 9), m(1, 9), kernels.AdamWParams{})
		}, count(153, 36, 27)},
		{"SGD", func(b *null.Backend, m tensor) { b.SGD(m(1, 9), m(1, 9), m(1, 9), kernels.SGDParams{}) }, count(63, 27, 18)},
		// Three present of four sources, two destinations.
		{"Reduce", func(b *null.Backend, m tensor) {
			x := m(1, 9)
			b.Reduce([]kernels.Tensor{x, m(1, 9)}, []kernels.Tensor{x, {}, m(1, 9), m(1, 9)}, kernels.Sum)
		}, count(18, 27, 18)},
		{"Reduce", func(b *null.Backend, m tensor) {
			b.Reduce([]kernels.Tensor{m(1, 9)}, []kernels.Tensor{m(1, 9), m(1, 9)}, kernels.Max)
		}, count(0, 18, 9)},
		{"Reduce", func(b *null.Backend, m tensor) {
			b.Reduce([]kernels.Tensor{m(1, 9)}, []kernels.Tensor{{}, {}}, kernels.Sum)
		}, count(0, 0, 9)},
		{"SumSquares", func(b *null.Backend, m tensor) { b.SumSquares(new(kernels.SquareSum), m(1, 9)) }, count(18, 9, 0)},
		{"Hash", func(b *null.Backend, m tensor) { b.Hash(new(kernels.Digest), m(3, 3), kernels.Place{}) }, count(0, 9, 0)},
		{"HashChanged", func(b *null.Backend, m tensor) {
			b.HashChanged(new(kernels.Digest), m(3, 3), m(3, 3), kernels.Place{})
		}, count(0, 18, 0)},
		{"Write", func(b *null.Backend, m tensor) { b.Write(m(1, 9), make([]float32, 9)) }, count(0, 0, 9)},
		{"WriteWide", func(b *null.Backend, m tensor) { b.WriteWide(m(1, 9), make([]float64, 9)) }, count(0, 0, 9)},
	}
	for _, tc := range tests {
		b := null.New()
		tc.call(b, func(rows, cols int) kernels.Tensor { return mat(t, b, rows, cols) })
		if diff := cmp.Diff(map[string]null.Count{tc.kernel: tc.want}, b.Counts().Kernels); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.kernel, diff)
		}
	}
}

// tensor allocates a matrix.
type tensor = func(rows, cols int) kernels.Tensor

// count is one call with the given operations and elements.
func count(flops, read, written int64) null.Count {
	return null.Count{Calls: 1, FLOPs: flops, BytesRead: 4 * read, BytesWritten: 4 * written}
}

// TestRead: what is read is zero, whatever the destination held.
func TestRead(t *testing.T) {
	b := null.New()
	x := mat(t, b, 2, 3)
	b.Write(x, []float32{1, 2, 3, 4, 5, 6})
	narrow, wide := []float32{7, 7, 7, 7, 7, 7}, []float64{7, 7, 7, 7, 7, 7}
	if err := b.Read(narrow, x); err != nil {
		t.Fatal(err)
	}
	if err := b.ReadWide(wide, x); err != nil {
		t.Fatal(err)
	}
	if cmp.Diff(narrow, make([]float32, 6)) != "" || cmp.Diff(wide, make([]float64, 6)) != "" {
		t.Errorf("read %v and %v, want zeros", narrow, wide)
	}
	if c := b.Counts().Kernels; c["Read"] != count(0, 6, 0) || c["ReadWide"] != count(0, 6, 0) {
		t.Errorf("counts %+v", c)
	}
}

// TestLive: live bytes follow Alloc and Free, the peak is their maximum, and
// buffers larger than the machine cost nothing.
func TestLive(t *testing.T) {
	b := null.New()
	var bufs []kernels.Buffer
	for _, n := range []int{10, 0, 1 << 40} {
		buf, err := b.Alloc(n)
		if err != nil || buf.Len() != n {
			t.Fatalf("Alloc(%d) = %v, %v", n, buf, err)
		}
		bufs = append(bufs, buf)
	}
	b.Free(bufs[2])
	if c := b.Counts(); c.Live != 40 || c.Peak != 40+4<<40 {
		t.Errorf("live %d, peak %d; want 40 and %d", c.Live, c.Peak, int64(40+4<<40))
	}
	b.Fill(kernels.Flat(bufs[0]), 0)
	b.Reset()
	if c := b.Counts(); c.Live != 40 || c.Peak != 40 || len(c.Kernels) != 0 {
		t.Errorf("after Reset: %+v", c)
	}
	for _, n := range []int{-1, math.MinInt, math.MaxInt, math.MaxInt / 4} {
		if buf, err := b.Alloc(n); err == nil {
			t.Errorf("Alloc(%d) = %v, want an error", n, buf)
		}
	}
	if c := b.Counts(); c.Live != 40 {
		t.Errorf("refused allocations left %d live bytes, want 40", c.Live)
	}
}

// TestSpan: views of a buffer overlap exactly where they share elements, and
// buffers never overlap, not even with a freed one.
func TestSpan(t *testing.T) {
	b := null.New()
	x, y := mat(t, b, 1, 64), mat(t, b, 1, 1)
	b.Free(x.Buf)
	z := mat(t, b, 1, 64)
	for _, tc := range []struct {
		name string
		a, b kernels.Tensor
		want bool
	}{
		{"halves", z.Range(0, 32), z.Range(32, 64), false},
		{"one shared element", z.Range(0, 33), z.Range(32, 64), true},
		{"empty range inside", z.Range(5, 5), z, false},
		{"other buffer", z, y, false},
		{"freed buffer", z, x, false},
		{"rows 0..1 and row 1", z.As(4, 8).ColRange(2, 4).RowRange(0, 2), z.As(4, 8).RowRange(1, 2), true},
	} {
		if got := b.Span(tc.a).Overlaps(b.Span(tc.b)); got != tc.want {
			t.Errorf("%s: overlap %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestConcurrent: counts of many goroutines add up.
func TestConcurrent(t *testing.T) {
	b := null.New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				buf, err := b.Alloc(6)
				if err != nil {
					t.Error(err)
					return
				}
				b.Scale(kernels.Flat(buf), kernels.Flat(buf), 2)
				_ = b.Counts().FLOPs()
				b.Free(buf)
			}
		})
	}
	wg.Wait()
	c := b.Counts()
	if c.FLOPs() != 4800 || c.Kernels["Scale"].Calls != 800 || c.Live != 0 || c.Peak < 24 || c.Peak > 192 {
		t.Errorf("counts %+v, %d FLOPs", c, c.FLOPs())
	}
}

// TestMisuse: shapes that do not fit panic with the kernel's name.
func TestMisuse(t *testing.T) {
	b := null.New()
	x, y := mat(t, b, 3, 4), mat(t, b, 4, 4)
	buf, err := b.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	b.Free(buf)
	for name, call := range map[string]func(){
		"MatMulNT: ": func() { b.MatMulNT(x, x, x, nil) },
		"Add: ":      func() { b.Add(x, x, y) },
		"Read: ":     func() { _ = b.Read(make([]float32, 11), x) },
		"Free: ":     func() { b.Free(buf) },
	} {
		func() {
			defer func() {
				if msg, _ := recover().(string); !strings.HasPrefix(msg, "kernels: "+name) {
					t.Errorf("%s: panic %q", name, msg)
				}
			}()
			call()
		}()
	}
}
