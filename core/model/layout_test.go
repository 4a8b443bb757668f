package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// parts lists every rank's part for tp and pp.
func parts(c Config, tp, pp int, vocab bool) []Part {
	var out []Part
	for s := range pp {
		for r := range tp {
			out = append(out, Part{Layers: shard.Part{Index: s, Size: pp}.Of(c.Layers), First: s == 0, Last: s == pp-1,
				Tensor: shard.Part{Index: r, Size: tp}, VocabParallel: vocab})
		}
	}
	return out
}

// Every logical element is held, and counts exactly once, however the model is
// cut; and the initial values of a part are those of the whole.
func TestPartsCoverTheModelOnce(t *testing.T) {
	for _, name := range []string{"nano", "odd"} {
		for _, tied := range []bool{false, true} {
			for _, cut := range [][2]int{{1, 1}, {2, 1}, {4, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 2}, {4, 4}} {
				for _, vocab := range []bool{false, true} {
					c, err := Named(name)
					if err != nil {
						t.Fatal(err)
					}
					c.Tied, c.LinearBias, c.InitBias = tied, true, 0.1
					t.Run(fmt.Sprintf("%s tied=%v tp=%d pp=%d vocab=%v", name, tied, cut[0], cut[1], vocab), func(t *testing.T) {
						checkCover(t, c, parts(c, cut[0], cut[1], vocab))
					})
				}
			}
		}
	}
}

func checkCover(t *testing.T, c Config, parts []Part) {
	whole := NewLayout(c, Whole(c))
	dense, seen := map[string][]float32{}, map[string][]int{}
	for i := range whole.Params {
		p := &whole.Params[i]
		dense[p.Name], seen[p.Name] = make([]float32, p.Len()), make([]int, p.Len())
		c.Initial(p, shard.Range{Hi: p.Len()}, 7, dense[p.Name])
	}
	for _, part := range parts {
		if err := part.Check(c); err != nil {
			t.Fatal(err)
		}
		l := NewLayout(c, part)
		off := 0
		for i := range l.Params {
			p := &l.Params[i]
			if p.Off != off {
				t.Fatalf("%s starts at %d, want %d", p.Name, p.Off, off)
			}
			off += p.Len()
			n := p.Len()
			buf := make([]float32, n)
			// In two pieces, so that a shard inside a row builds itself too.
			c.Initial(p, shard.Range{Hi: n / 3}, 7, buf[:n/3])
			c.Initial(p, shard.Range{Lo: n / 3, Hi: n}, 7, buf[n/3:])
			p.Places(shard.Range{Hi: n}, func(r shard.Range, rows, cols int, at kernels.Place) {
				for e := range r.Len() {
					index := at.First + uint64(e/cols)*at.RowStride + uint64(e%cols)
					if buf[r.Lo+e] != dense[p.Name][index] {
						t.Fatalf("%s element %d: initial %v, want %v", p.Name, index, buf[r.Lo+e], dense[p.Name][index])
					}
					if p.Counts {
						seen[p.Name][index]++
					}
				}
			})
		}
		if off != l.Grads {
			t.Fatalf("parameters end at %d, the gradient buffer at %d", off, l.Grads)
		}
	}
	for name, s := range seen {
		if name == HeadName && c.Tied {
			continue
		}
		for i, n := range s {
			if n != 1 {
				t.Fatalf("%s element %d counts %d times", name, i, n)
			}
		}
	}
}

// A pass uses the units in the order of the layers; the tied head lies within
// the final norm's use, and reads the embedding where that is beside it.
func TestOrderAndSource(t *testing.T) {
	c, err := Named("odd")
	if err != nil {
		t.Fatal(err)
	}
	last := Whole(c)
	last.First, last.Layers.Lo = false, 2
	middle := last
	middle.Last = false
	untied := c
	untied.Tied = false
	for _, x := range []struct {
		name              string
		c                 Config
		p                 Part
		forward, backward []int
		source            []int
	}{
		{"tied", c, Whole(c), []int{0, 1, 2, 3, 4, 5, 6}, []int{5, 6, 4, 3, 2, 1, 0}, []int{0, 1, 2, 3, 4, 5, 0}},
		{"untied", untied, Whole(c), []int{0, 1, 2, 3, 4, 5}, []int{5, 4, 3, 2, 1, 0}, []int{0, 1, 2, 3, 4, 5}},
		{"last stage", c, last, []int{0, 1, 2, 3}, []int{2, 3, 1, 0}, []int{0, 1, 2, 3}},
		{"a stage between", c, middle, []int{0, 1}, []int{1, 0}, []int{0, 1}},
	} {
		l := NewLayout(x.c, x.p)
		if got := l.Order(Forward); !slices.Equal(got, x.forward) {
			t.Errorf("%s: forward %v, want %v", x.name, got, x.forward)
		}
		if got := l.Order(Backward); !slices.Equal(got, x.backward) {
			t.Errorf("%s: backward %v, want %v", x.name, got, x.backward)
		}
		for u, want := range x.source {
			if got := l.Source(u); got != want {
				t.Errorf("%s: unit %d reads the weights of unit %d, want %d", x.name, u, got, want)
			}
		}
	}
}
