package ref_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

func TestAllocRefuses(t *testing.T) {
	b := ref.New[float32]()
	for _, n := range []int{-1, math.MinInt, math.MaxInt, math.MaxInt / 4, 1 << 50} {
		buf, err := b.Alloc(n)
		if err == nil {
			t.Fatalf("Alloc(%d) gave %d elements", n, buf.Len())
		}
		if !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("error %q does not name %d", err, n)
		}
	}
	if live, peak := b.Live(); live != 0 || peak != 0 {
		t.Errorf("refused allocations count: %d live, %d peak", live, peak)
	}
}

func TestLive(t *testing.T) {
	b := ref.New[float64]()
	x, _ := b.Alloc(10)
	y, _ := b.Alloc(5)
	empty, err := b.Alloc(0)
	if err != nil || empty.Len() != 0 {
		t.Fatalf("Alloc(0) = %v, %v", empty, err)
	}
	b.Free(y)
	b.Free(y)
	b.Free(nil)
	if live, peak := b.Live(); live != 80 || peak != 120 {
		t.Errorf("%d bytes live, %d at peak; want 80 and 120", live, peak)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				z, err := b.Alloc(3)
				if err != nil {
					t.Error(err)
					return
				}
				b.Free(z)
			}
		})
	}
	wg.Wait()
	b.Free(x)
	if live, peak := b.Live(); live != 0 || peak < 120 || peak > 80+8*24 && peak != 120 {
		t.Errorf("%d bytes live, %d at peak", live, peak)
	}
}

func TestReadWrite(t *testing.T) {
	b := ref.New[float64]()
	buf, err := b.Alloc(12)
	if err != nil {
		t.Fatal(err)
	}
	x := kernels.Tensor{Buf: buf, Off: 1, Rows: 2, Cols: 3, Stride: 5}
	wide := []float64{1.0 / 3, 2, math.Pi, -1, math.Copysign(0, -1), 1e300}
	b.WriteWide(x, wide)
	back, narrow := make([]float64, 6), make([]float32, 6)
	if err := b.ReadWide(back, x); err != nil {
		t.Fatal(err)
	}
	if err := b.Read(narrow, x); err != nil {
		t.Fatal(err)
	}
	for i, v := range wide {
		if math.Float64bits(back[i]) != math.Float64bits(v) {
			t.Errorf("element %d reads back as %v, want %v", i, back[i], v)
		}
		if math.Float32bits(narrow[i]) != math.Float32bits(float32(v)) {
			t.Errorf("element %d reads as %v, want %v", i, narrow[i], float32(v))
		}
	}
	for _, i := range []int{0, 4, 5, 9, 10, 11} {
		if v := ref.Data[float64](kernels.Flat(buf))[i]; v != 0 {
			t.Errorf("element %d beside the tensor became %v", i, v)
		}
	}
	b.Write(x, narrow)
	if err := b.ReadWide(back, x); err != nil || back[0] != float64(float32(1.0/3)) {
		t.Errorf("Write then ReadWide gives %v, %v", back[0], err)
	}
	if err := b.Sync(); err != nil {
		t.Error(err)
	}
}

func TestSpan(t *testing.T) {
	b := ref.New[float32]()
	p, _ := b.Alloc(10)
	q, _ := b.Alloc(10)
	x, y := kernels.Flat(p), kernels.Flat(q)
	for _, c := range []struct {
		a, b kernels.Tensor
		want bool
	}{
		{x, x, true}, {x, y, false}, {x.Range(0, 5), x.Range(5, 10), false}, {x.Range(0, 6), x.Range(5, 10), true},
		{x.Range(3, 3), x, false},
	} {
		if got := b.Span(c.a).Overlaps(b.Span(c.b)); got != c.want {
			t.Errorf("%s and %s overlap: %v, want %v", c.a, c.b, got, c.want)
		}
	}
	if s := b.Span(x.Range(2, 7)); s.Space != "host" || s.Hi-s.Lo != 20 || s.Lo != b.Span(x).Lo+8 {
		t.Errorf("span %+v of 5 elements at 2 in %+v", s, b.Span(x))
	}
}

// TestMisuse: shapes that do not fit panic with the prefix of the package.
func TestMisuse(t *testing.T) {
	d := newDesk(t)
	x, _ := d.random(2, 3)
	y, _ := d.random(3, 2)
	v, _ := d.random(1, 5)
	gone, _ := d.Alloc(6)
	freed := kernels.Flat(gone)
	d.Free(gone)
	other, _ := ref.New[float64]().Alloc(6)
	for name, f := range map[string]func(){
		"absent":           func() { d.Fill(kernels.Tensor{}, 0) },
		"lengths":          func() { d.Add(x, y, v) },
		"freed":            func() { d.Fill(freed.As(2, 3), 0); d.Fill(kernels.Tensor{Buf: gone, Rows: 1, Cols: 6, Stride: 6}, 0) },
		"other backend":    func() { d.Fill(kernels.Flat(other), 0) },
		"strided":          func() { d.Fill(x.ColRange(0, 2), 0) },
		"beyond":           func() { d.AddBias(kernels.Tensor{Buf: x.Buf, Rows: 3, Cols: 3, Stride: 3}, v.Range(0, 3)) },
		"overlapping rows": func() { d.AddBias(kernels.Tensor{Buf: x.Buf, Rows: 2, Cols: 3, Stride: 2}, v.Range(0, 3)) },
		"inner size":       func() { d.MatMulNT(d.dirty(2, 3), x, y, nil) },
		"groups":           func() { d.MatMulNT(d.dirty(2, 2), x, x, []int{0, 2, 1, 3}) },
		"groups to":        func() { d.MatMulNT(d.dirty(2, 2), x, x, []int{0, 2}) },
		"no groups":        func() { d.MatMulNT(d.dirty(2, 2), x, x, []int{}) },
		"group counts": func() {
			d.MatMulNN(d.dirty(2, 2), []kernels.Term{{A: x, B: y}, {A: x, B: y, Groups: []int{0, 1, 3}}})
		},
		"rope": func() { d.Rope(x, d.dirty(2, 2), d.dirty(2, 2), false) },
		"heads": func() {
			d.Attention(x, x, x, x, x, kernels.Heads{Seqs: 1, T: 2, Heads: 3, KVHeads: 2, Dim: 1, KVGroups: 1})
		},
		"tokens":    func() { d.Embedding(x, x, []int32{1}, 0) },
		"operation": func() { d.Reduce([]kernels.Tensor{x}, nil, kernels.Op(9)) },
		"read":      func() { _ = d.Read(make([]float32, 5), x) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "kernels: ") {
					t.Errorf("recovered %q, want a panic that starts with \"kernels: \"", s)
				}
			}()
			f()
		})
	}
}

func TestNames(t *testing.T) {
	if a, b := ref.New[float32]().Name(), ref.New[float64]().Name(); a != "ref" || b != "ref64" {
		t.Errorf("names %q and %q", a, b)
	}
}

// TestConcurrent: ranks that share a backend do not share its scratch.
func TestConcurrent(t *testing.T) {
	b := ref.New[float32]()
	var wg sync.WaitGroup
	for rank := range 4 {
		wg.Go(func() {
			buf, err := b.Alloc(3 * 100)
			if err != nil {
				t.Error(err)
				return
			}
			all := kernels.Flat(buf)
			a, w, c := all.Range(0, 100).As(10, 10), all.Range(100, 200).As(10, 10), all.Range(200, 300).As(10, 10)
			b.Fill(a, float64(rank+1))
			b.Fill(w, 1)
			for range 200 {
				b.MatMulNT(c, a, w, []int{0, 1, 2, 5, 7, 10})
				for _, v := range ref.Data[float32](c) {
					if v != float32(10*(rank+1)) {
						t.Errorf("rank %d: %v, want %d", rank, v, 10*(rank+1))
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
