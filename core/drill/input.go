package drill

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Input names a kind of inputs.
type Input string

// The kinds of inputs.
const (
	Integer Input = "integer" // sums are exact in any order
	Order   Input = "order"   // sums show the order of additions
)

// hash mixes words into one (splitmix64's finaliser after each).
func hash(words ...uint64) uint64 {
	h := uint64(0x243f6a8885a308d3)
	for _, w := range words {
		h = mix(h, w)
	}
	return h
}

// mix goes on from the hash of some words to that of one more.
func mix(h, w uint64) uint64 {
	h += w + 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// source gives the elements of all ranks for one operation.
type source struct {
	kind Input
	op   kernels.Op
	base uint64 // hash of the seed
}

// at is the hash of the seed and an index, the same on all ranks.
func (s source) at(i int) uint64 { return mix(s.base, uint64(i)) }

// term is an exactly representable element: m * 2^e, or what is planted.
type term struct {
	m    int64
	e    int
	neg  bool // of m = 0: -0
	nan  bool
	sign int // +1, -1: infinite
}

// The range of the exponents of Integer inputs, and the bound of their
// mantissas: sums over up to 2^13 ranks stay below 2^24.
const (
	minExponent  = -20
	exponents    = 40
	mantissaSpan = 4001
	subnormal    = -149
)

// term is element i of a rank's Integer input. The index alone decides the
// class, so that each class meets itself on the other ranks.
func (s source) term(rank, i int) term {
	class := s.at(i)
	own := mix(class, uint64(rank))
	t := term{m: int64(own%mantissaSpan) - mantissaSpan/2, e: minExponent + int(class>>8%exponents)}
	switch class % 16 {
	case 0: // -0 on every rank stays -0
		t.m, t.neg = 0, true
	case 1: // +0 and -0; which one a maximum keeps depends on order
		t.m, t.neg = 0, own>>32%2 == 1 && s.op != kernels.Max
	case 2:
		t.nan = own>>32%4 == 0
	case 3:
		t.sign = int(own >> 32 % 4 / 3)
	case 4:
		t.sign = int(own>>32%3) - 1
	case 5:
		t.e = subnormal
	}
	return t
}

// float is the term as float32, exactly.
func (t term) float() float32 {
	switch {
	case t.nan:
		return float32(math.NaN())
	case t.sign != 0:
		return float32(math.Inf(t.sign))
	case t.m == 0 && t.neg:
		return math.Float32frombits(1 << 31)
	case t.e == subnormal && t.m < 0:
		return math.Float32frombits(1<<31 | uint32(-t.m))
	case t.e == subnormal:
		return math.Float32frombits(uint32(t.m))
	}
	return float32(t.m) * math.Float32frombits(uint32(t.e+127)<<23)
}

// value is element i of a rank's input.
func (s source) value(rank, i int) float32 {
	if s.kind == Integer {
		return s.term(rank, i).float()
	}
	h := mix(s.at(i), uint64(rank))
	if h%32 == 0 { // a zero of either sign
		return math.Float32frombits(uint32(h>>32) & (1 << 31))
	}
	exponent := 127 - 1 + uint32(h>>56%3)
	return math.Float32frombits(uint32(h>>23)&(1<<31|1<<23-1) | exponent<<23)
}

// word is element i of a rank's input to integer collectives.
func (s source) word(rank, i int) uint64 { return mix(mix(s.at(i), uint64(rank)), 1) }

// Guards is the number of guard elements on each side of a tensor; odd, so that
// tensors are not aligned.
const Guards = 5

// guard is what lies at place j of a buffer, outside the tensor.
func guard(j int) float32 { return math.Float32frombits(0x7f0a5a00 + uint32(j)&0xff) }

// stale is what a destination holds before an operation.
const stale = 12345.5

// Buffer is what a tensor of n elements lies in before an operation: guards, stale
// elements, guards.
func Buffer(n int) []float32 {
	buf := make([]float32, n+2*Guards)
	for j := range buf {
		buf[j] = stale
		if j < Guards || j >= n+Guards {
			buf[j] = guard(j)
		}
	}
	return buf
}

// Fill gives x the elements from first on of the rank's input.
func (r Record) Fill(x []float32, first int) {
	s := r.source()
	for i := range x {
		x[i] = s.value(r.Rank, first+i)
	}
}

// Words is the rank's input to an all-reduce of integers.
func (r Record) Words() []uint64 {
	s := r.source()
	x := make([]uint64, r.Count)
	for i := range x {
		x[i] = s.word(r.Rank, i)
	}
	return x
}

// Bytes is the rank's input to an all-gather of bytes.
func (r Record) Bytes() []byte { return r.bytesOf(r.Rank) }
