package model_test

import (
	"context"
	"math"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/property/gen"
)

// step is the first step of the central differences, 2^-13: a power of two, so
// that w+h and w-h are exact. The loss is good to about 1e-14 (see noise), which
// a difference quotient divides by 2h = 2e-4; its truncation error is h^2/6 =
// 2e-9 times the third derivative, of which estimate takes the leading term off.
const step = 0x1p-13

// noise bounds the rounding error of a loss: each of the roundings on the way
// from a weight to the loss, no more than the lengths of all sums on it, is at
// most 2^-53 of values that stay below 8 here (weights of deviation 1/2, normed
// rows); they add up at random or not, so all are counted.
func noise(c model.Config) float64 {
	sums := c.Vocab + c.Layers*(4*c.Hidden+2*c.QDim()+2*c.Intermediate+3*c.SeqLen+2*c.HeadDim)
	return 8 * float64(sums) * 0x1p-53
}

// estimate is the derivative of the loss by element i of the weights, by central
// differences at steps h and h/2, and a bound of its error. With D(h) = f' +
// a*h^2 + O(h^4), D(h)-D(h/2) is 3/4 a*h^2, so (4*D(h/2)-D(h))/3 is without the
// term, and what is left is below the difference of the two unless h is far too
// large. To that comes the noise of the four losses: at most 5/3 of 2*noise/h.
func estimate(t *rapid.T, r *part[float64], b model.Batch, i int) (derivative, bound float64) {
	w := r.w[i]
	at := func(x float64) float64 {
		r.w[i] = x
		if err := r.run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		return r.mean(b)
	}
	coarse := (at(w+step) - at(w-step)) / (2 * step)
	fine := (at(w+step/2) - at(w-step/2)) / step
	r.w[i] = w
	return (float64(4*fine) - coarse) / 3, math.Abs(fine-coarse) + 4*noise(r.Config())/step
}

// gradientOf is the gradient of parameter p: of a tied embedding, both sources.
func gradientOf(r *part[float64], g []float64, p *model.Param) []float64 {
	out := append([]float64(nil), g[p.Off:p.Off+p.Len()]...)
	if p.Name == model.EmbedName && r.Config().Tied {
		for i, x := range g[r.Layout.Owned:] {
			out[i] += x
		}
	}
	return out
}

var _ = Describe("The backward pass", Label("C-DDP-001", "C-TP-001"), func() {
	It("is the derivative of the forward pass", func() {
		sharp, all := 0, 0
		gen.Check("derivative", func(t *rapid.T) {
			c := gen.Config(t, 3)
			b, seed := drawBatch(t, c), rapid.Uint64().Draw(t, "seed")
			r, err := newPart[float64](c, model.Whole(c), seed, b.Seqs)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			g := append([]float64(nil), r.g...)
			for j := range r.Layout.Params {
				p := &r.Layout.Params[j]
				if p.Off >= r.Layout.Owned {
					continue
				}
				grads := gradientOf(r, g, p)
				for _, i := range []int{largest(grads), rapid.IntRange(0, p.Len()-1).Draw(t, "element")} {
					want, bound := estimate(t, r, b, p.Off+i)
					if math.Abs(grads[i]-want) > bound {
						t.Fatalf("%s, element %d: gradient %v, central differences give %v, not further off than %v", p.Name, i, grads[i], want, bound)
					}
					if all++; bound < 1e-4*math.Abs(grads[i]) || bound < 1e-7 {
						sharp++
					}
				}
			}
		})
		// The bound is no excuse: it is small in almost all cases.
		if sharp < all*9/10 {
			Fail("too few of the comparisons mean anything")
		}
	})
})

// largest is the index of the element of largest magnitude.
func largest(x []float64) int {
	at := 0
	for i := range x {
		if math.Abs(x[i]) > math.Abs(x[at]) {
			at = i
		}
	}
	return at
}
