package drill

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/kernels"
)

// memoryCases are the cases of kernels.Memory; they need no oracle.
func memoryCases(seed uint64) []*Case {
	var out []*Case
	add := func(name string, work int, f func(b kernels.Backend) error) {
		out = append(out, demand(Memory, name, work, f))
	}
	add("name", 1, func(b kernels.Backend) error {
		if b.Name() == "" {
			return errors.New("the name is empty")
		}
		return nil
	})
	add("refused", 1, allocRefused)
	add("span", 1, spans)
	add("host", 1, hostElements)
	add("wide", 1, wideRoundTrip)
	for _, n := range lengths() {
		add(fmt.Sprintf("zeroed_n%d", n), n, func(b kernels.Backend) error { return allocZeroed(b, n) })
		add(fmt.Sprintf("roundtrip_n%d", n), n, func(b kernels.Backend) error { return roundTrip(b, n, hash(seed, uint64(n))) })
	}
	return out
}

// demand is a case that asks for no oracle.
func demand(kernel, name string, work int, f func(b kernels.Backend) error) *Case {
	return &Case{Kernel: kernel, Name: name, Level: 1, Work: work, Elements: work, expect: func(kernels.Backend) (check, kernels.Digest, error) {
		return func(b kernels.Backend) (int, *Difference) {
			if err := f(b); err != nil {
				return work, failed(err)
			}
			return work, nil
		}, kernels.Digest{}, nil
	}}
}

// allocRefused: impossible sizes are errors that name the size.
func allocRefused(b kernels.Backend) error {
	for _, n := range []int{-1, math.MinInt, math.MaxInt, 1 << 60} {
		buf, err := b.Alloc(n)
		if err == nil {
			return fmt.Errorf("Alloc(%d) gave a buffer of %d elements, want an error", n, buf.Len())
		}
		if !strings.Contains(err.Error(), strconv.Itoa(n)) {
			return fmt.Errorf("Alloc(%d): error %q does not name the size", n, err)
		}
	}
	return nil
}

// allocZeroed: memory is zero also when it was used before.
func allocZeroed(b kernels.Backend, n int) error {
	for range 3 {
		buf, err := b.Alloc(n)
		if err != nil {
			return err
		}
		if buf.Len() != n {
			return fmt.Errorf("a buffer of %d elements, want %d", buf.Len(), n)
		}
		x := slices.Repeat([]float32{7}, n)
		if err := b.Read(x, kernels.Flat(buf)); err != nil {
			return err
		}
		for i, v := range x {
			if math.Float32bits(v) != 0 {
				return fmt.Errorf("element %d of %d new ones is %s", i, n, show(v))
			}
		}
		b.Fill(kernels.Flat(buf), 3)
		if err := b.Sync(); err != nil {
			return err
		}
		b.Free(buf)
	}
	return nil
}

// roundTrip: Write and Read move every bit of every kind of value, to and from
// any offset, and touch nothing beside the view.
func roundTrip(b kernels.Backend, n int, seed uint64) error {
	off := int(seed % 16)
	buf, err := b.Alloc(off + n + back)
	if err != nil {
		return err
	}
	defer b.Free(buf)
	whole := kernels.Flat(buf)
	want := make([]float32, whole.Len())
	for i := range want {
		want[i] = guard(hash(seed, uint64(i)))
	}
	b.Write(whole, want)
	for _, m := range modes() {
		part := want[off : off+n]
		for i := range part {
			part[i] = m.fill(hash(seed, uint64(i)))
		}
		src := slices.Clone(part)
		b.Write(whole.Range(off, off+n), src)
		clear(src) // the backend must not look at it after Write returned
		got, again := make([]float32, len(want)), make([]float32, n)
		if err := errors.Join(b.Read(got, whole), b.Read(again, whole.Range(off, off+n))); err != nil {
			return err
		}
		if i := firstDifference(got, want); i >= 0 {
			return fmt.Errorf("%s: element %d of the buffer reads %s, want %s (%d elements written at %d)", m.name, i, show(got[i]), show(want[i]), n, off)
		}
		if i := firstDifference(again, part); i >= 0 {
			return fmt.Errorf("%s: element %d of the view reads %s, want %s", m.name, i, show(again[i]), show(part[i]))
		}
	}
	return nil
}

// firstDifference is the first index at which two slices of one length differ, or -1.
func firstDifference(got, want []float32) int {
	for i := range want {
		if got[i] == want[i] && got[i] != 0 {
			continue
		}
		if kernels.Bits(got[i]) != kernels.Bits(want[i]) {
			return i
		}
	}
	return -1
}

// wideRoundTrip: WriteWide rounds to nearest even, subnormals kept; ReadWide
// gives the float32 values exactly.
func wideRoundTrip(b kernels.Backend) error {
	src := []float64{0, math.Copysign(0, -1), 0.1, 1 + 0x1p-24, 1 + 0x1p-24 + 0x1p-50, 1 + 3*0x1p-24, -1 - 0x1p-24, 1e300, -1e300,
		0x1.ffffffp127, 0x1.fffffefffp127, 0x1p-149, 0x1p-150, 0x1.8p-149, 0x1.000001p-150, 0x1.fffffdp-127, math.Inf(1), math.Inf(-1), math.NaN()}
	const off = 3
	buf, err := b.Alloc(off + len(src) + back)
	if err != nil {
		return err
	}
	defer b.Free(buf)
	x := kernels.Flat(buf).Range(off, off+len(src))
	b.WriteWide(x, src)
	got, wide := make([]float32, buf.Len()), make([]float64, len(src))
	if err := errors.Join(b.Read(got, kernels.Flat(buf)), b.ReadWide(wide, x)); err != nil {
		return err
	}
	want := make([]float32, buf.Len())
	for i, v := range src {
		want[off+i] = float32(v)
		if w := float64(float32(v)); math.Float64bits(wide[i]) != math.Float64bits(w) && w == w {
			return fmt.Errorf("ReadWide gives %v for %v, want %v", wide[i], v, w)
		}
	}
	if i := firstDifference(got, want); i >= 0 {
		return fmt.Errorf("WriteWide: element %d of the buffer is %s, want %s", i, show(got[i]), show(want[i]))
	}
	return nil
}

// spans: views of one buffer overlap exactly where they share elements, at four
// bytes an element; live buffers never overlap.
func spans(b kernels.Backend) error {
	var all []kernels.Tensor
	for _, n := range []int{64, 64, 1, 1000} {
		buf, err := b.Alloc(n)
		if err != nil {
			return err
		}
		defer b.Free(buf)
		x := kernels.Flat(buf)
		if s := b.Span(x); s.Hi-s.Lo != uint64(4*n) {
			return fmt.Errorf("%d elements span %d bytes, want %d", n, s.Hi-s.Lo, 4*n)
		}
		all = append(all, x)
	}
	x := all[0]
	m := x.As(4, 16)
	for _, tc := range []struct {
		name string
		a, b kernels.Tensor
		want bool
	}{
		{"a view and its buffer", x.Range(5, 6), x, true},
		{"neighbours", x.Range(0, 32), x.Range(32, 64), false},
		{"one shared element", x.Range(0, 33), x.Range(32, 64), true},
		{"an empty view and its buffer", x.Range(5, 5), x, false},
		{"rows", m.RowRange(0, 2), m.RowRange(2, 4), false},
		{"a strided view and its last row", m.ColRange(3, 9), m.RowRange(3, 4).ColRange(8, 16), true},
		{"two buffers", x, all[1], false},
		{"a buffer of one element and another", all[2], all[3], false},
	} {
		sa, sb := b.Span(tc.a), b.Span(tc.b)
		if sa.Overlaps(sb) != tc.want || sb.Overlaps(sa) != tc.want {
			return fmt.Errorf("%s: spans %v and %v overlap: %t, want %t", tc.name, sa, sb, !tc.want, tc.want)
		}
	}
	return nil
}
