package ref_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

func TestElementwise(t *testing.T) {
	d := newDesk(t)
	for _, s := range [][2]int{{0, 3}, {3, 0}, {1, 1}, {5, 7}} {
		n, h := s[0], s[1]
		x, xs := d.random(n, h)
		y, ys := d.random(n, h)
		b, bs := d.random(1, h)
		sum, scaled, residual := make([]float32, n*h), make([]float32, n*h), make([]float32, n*h)
		biased, columns := make([]float32, n*h), append([]float32(nil), bs...)
		for i := range n * h {
			sum[i], scaled[i] = xs[i]+ys[i], xs[i]*float32(-0.3)
			residual[i] = xs[i] + (ys[i] + bs[i%h])
			biased[i] = xs[i] + bs[i%h]
			columns[i%h] += xs[i]
		}
		out := d.dirty(n, h)
		d.Add(out, x, y)
		d.want("add", out, sum)
		d.Scale(out, x, -0.3)
		d.want("scale", out, scaled)
		d.Residual(out, x, y, b)
		d.want("residual", out, residual)
		d.Residual(out, x, y, kernels.Tensor{})
		d.want("residual without bias", out, sum)
		d.Copy(out, x)
		d.want("copy", out, xs)
		d.AddBias(out, b)
		d.want("add bias", out, biased)
		d.Add(x, x, y)
		d.want("add on x", x, sum)
		d.Write(x, xs)
		d.ColumnSum(b, x)
		d.want("column sum", b, columns)
		d.Residual(y, x, y, kernels.Tensor{})
		d.want("residual on y", y, sum)
		d.Fill(y, math.Copysign(0, -1))
		for i, v := range ref.Data[float32](y) {
			if math.Float32bits(v) != 1<<31 {
				t.Fatalf("fill: element %d is %x, want -0", i, v)
			}
		}
	}
}

// TestCopyKeepsBits: also those of a signalling NaN, which arithmetic would quiet.
func TestCopyKeepsBits(t *testing.T) {
	d := newDesk(t)
	const signalling = 0x7f800001
	src, dst := d.put(1, 1, []float32{0}), d.put(1, 1, []float32{0})
	ref.Data[float32](src)[0] = fromB(signalling)
	d.Copy(dst, src)
	if got := math.Float32bits(ref.Data[float32](dst)[0]); got != signalling {
		t.Errorf("copied bits %#x, want %#x", got, signalling)
	}
}

// TestReduce against the tree over the leaves that are there: an absent leaf
// leaves its partner untouched, which the naive tree gets from -0.
func TestReduce(t *testing.T) {
	d := newDesk(t)
	for _, n := range []int{0, 1, 5, 1024, 1030} {
		for _, leaves := range []int{1, 2, 3, 5, 7, 8, 13} {
			for _, mask := range []uint{0, 1, 1 << (leaves - 1), 0b101010101, 0b1110, 1<<leaves - 1} {
				src := make([]kernels.Tensor, leaves)
				values := make([][]float32, leaves)
				for i := range src {
					if mask>>i&1 == 1 {
						src[i], values[i] = d.random(1, n)
					}
				}
				sum, top := make([]float32, n), make([]float32, n)
				for j := range n {
					at := make([]float32, leaves)
					top[j] = -inf
					for i, v := range values {
						at[i] = minusZ
						if v == nil {
							continue
						}
						at[i] = v[j]
						if v[j] > top[j] {
							top[j] = v[j]
						}
					}
					sum[j] = naiveTree(at)
				}
				what := fmt.Sprintf("%d leaves, mask %b, n %d", leaves, mask, n)
				a, b := d.dirty(1, n), d.dirty(1, n)
				d.Reduce([]kernels.Tensor{a, b}, src, kernels.Max)
				d.want("max "+what, a, top)
				d.want("max, second destination "+what, b, top)
				dst := []kernels.Tensor{a}
				for _, x := range src { // in place on every source
					if !x.Absent() {
						dst = append(dst, x)
					}
				}
				d.Reduce(dst, src, kernels.Sum)
				for i, x := range dst {
					d.want(fmt.Sprint("sum ", what, " destination ", i), x, sum)
				}
			}
		}
	}
}

// TestReduceNothing: without sources the result is the neutral element.
func TestReduceNothing(t *testing.T) {
	d := newDesk(t)
	x := d.dirty(1, 3)
	d.Reduce([]kernels.Tensor{x}, nil, kernels.Sum)
	d.want("sum", x, []float32{minusZ, minusZ, minusZ})
	d.Reduce([]kernels.Tensor{x}, nil, kernels.Max)
	d.want("max", x, []float32{-inf, -inf, -inf})
	d.Reduce(nil, []kernels.Tensor{x}, kernels.Sum)
}

// TestLanes: all 32 lanes take part, and lane i mod 32 takes element i. The
// values are chosen so that another order of the additions shows.
func TestLanes(t *testing.T) {
	d := newDesk(t)
	differs := 0
	for _, n := range []int{1, 16, 31, 32, 33, 64, 65, 100, 257} {
		_, x := d.random(1, n)
		m, total := d.put(1, 1, []float32{0}), d.dirty(1, 1)
		z := d.put(1, n, x)
		d.LogitsExpSum(total, z, m, nil)
		e := make([]float32, n)
		plain := float32(0)
		for i, v := range x {
			e[i] = ref.Exp32(v)
			plain += e[i]
		}
		d.want(fmt.Sprint("lanes of ", n), total, []float32{naiveLanesSum(e)})
		if plain != ref.Data[float32](total)[0] {
			differs++
		}
	}
	if differs == 0 {
		t.Error("lanes never differ from an ascending sum: the values show nothing")
	}
}
