package independent

import (
	"fmt"
	"math"
)

// Bounded is a tensor with its bounds, row by row: every float32 evaluation of
// element i lies within Bound[i] of Value[i].
type Bounded struct{ Value, Bound []float64 }

// Worst is the element of got that is furthest out, in parts of its bound; more
// than 1 is outside, and so is what is not a number. Index is -1 where there is no
// element or the lengths differ, the ratio +Inf where they differ.
func (b Bounded) Worst(got []float32) (index int, ratio float64) {
	if len(got) != len(b.Value) {
		return -1, math.Inf(1)
	}
	index = -1
	for i, x := range got {
		r := math.Abs(float64(x)-b.Value[i]) / b.Bound[i]
		switch {
		case float64(x) == b.Value[i] && !math.IsInf(b.Value[i], 0):
			r = 0
		case math.IsNaN(r):
			r = math.Inf(1) // not a number, infinite on either side
		}
		if index < 0 || r > ratio {
			index, ratio = i, r
		}
	}
	return index, ratio
}

// Width is the widest bound in parts of the tensor's largest magnitude: how much
// the bounds say. It is 0 where every bound is, +Inf where all values are 0.
func (b Bounded) Width() float64 {
	return width(b, 0)
}

// width is Width beside what may be larger than all values.
func width(b Bounded, top float64) float64 {
	widest := 0.0
	for i, e := range b.Bound {
		if !(e <= widest) {
			widest = e
		}
		top = max(top, math.Abs(b.Value[i]))
	}
	switch {
	case widest == 0:
		return 0
	case math.IsNaN(widest) || math.IsNaN(top):
		return math.Inf(1)
	}
	return widest / top
}

// Judged is what a recorded tensor looks like against its evaluation.
type Judged struct {
	Name string
	// Index is the element that is furthest out, in parts of its bound: Ratio, more
	// than 1 where it is outside. It is -1 where there is no element or the lengths
	// differ.
	Index int
	Ratio float64
	// Got is that element as recorded, Want and Bound are as evaluated.
	Got         float32
	Want, Bound float64
	// Width is how much the bounds say: the widest in parts of the tensor's largest
	// magnitude or, where it is more, of the largest term that cancels in it.
	Width    float64
	Elements int
	// NormRatio is that of the norm of what was recorded and of what was evaluated, of
	// a tensor that is outside.
	NormRatio float64
}

// Judge compares a recorded tensor with its evaluation.
func (b Bounded) Judge(name string, got []float32) Judged {
	j := Judged{Name: name, Width: b.Width(), Elements: len(got)}
	if j.Index, j.Ratio = b.Worst(got); j.Index >= 0 {
		j.Got, j.Want, j.Bound = got[j.Index], b.Value[j.Index], b.Bound[j.Index]
	}
	if j.Outside() && j.Index >= 0 {
		var x, y float64
		for i, g := range got {
			x, y = x+float64(g)*float64(g), y+b.Value[i]*b.Value[i]
		}
		j.NormRatio = math.Sqrt(x / y)
	}
	return j
}

// Outside says whether an element lies outside its bound.
func (j Judged) Outside() bool { return j.Ratio > 1 }

// String names tensor, element, both values and the ratio.
func (j Judged) String() string {
	return fmt.Sprintf("%s[%d] is %v, evaluated %v: %.3g of the bound %.3g", j.Name, j.Index, j.Got, j.Want, j.Ratio, j.Bound)
}
