package kernels

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exact is the value of s by arbitrary precision.
func exact(s *SquareSum) *big.Int {
	v := new(big.Int)
	for i := squareDigits - 1; i >= 0; i-- {
		v.Lsh(v, 32)
		v.Add(v, new(big.Int).SetUint64(s[i]))
	}
	return v
}

// rounded is v * 2^-298, rounded once to float64.
func rounded(v *big.Int) float64 {
	f := new(big.Float).SetPrec(1000).SetInt(v)
	x, _ := f.SetMantExp(f, squareUnit).Float64()
	return x
}

func wide(hi, lo uint64, shift int) *big.Int {
	v := new(big.Int).SetUint64(hi)
	v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(lo))
	return v.Lsh(v, uint(shift))
}

// checkSum compares the digits, their range and the rounded sum with v.
func checkSum(t *testing.T, what string, s *SquareSum, v *big.Int) {
	t.Helper()
	if got := exact(s); got.Cmp(v) != 0 {
		t.Fatalf("%s: digits hold %x, want %x", what, got, v)
	}
	if got, want := s.Sum(), rounded(v); got != want {
		t.Fatalf("%s: Sum = %x, want %x", what, got, want)
	}
}

func checkNormal(t *testing.T, what string, s *SquareSum) {
	t.Helper()
	for i, d := range s[:squareDigits] {
		if d > math.MaxUint32 {
			t.Fatalf("%s: digit %d is %x, beyond 2^32", what, i, d)
		}
	}
}

// TestSquareSumShifts: every shift that squares of float32 values need, with
// parts that carry into all further digits.
func TestSquareSumShifts(t *testing.T) {
	for shift := 0; shift <= 506; shift++ {
		for _, part := range [][2]uint64{{0, 0}, {0, 1}, {0, math.MaxUint64}, {1, 0}, {math.MaxUint64, math.MaxUint64}, {1 << 63, 1}} {
			var s SquareSum
			s.AddScaled(part[0], part[1], shift)
			want := wide(part[0], part[1], shift)
			checkSum(t, "once", &s, want)
			s.AddScaled(part[0], part[1], shift)
			s.AddScaled(0, math.MaxUint64, 0)
			s.AddScaled(0, 1, 0)
			want.Add(want, want).Add(want, wide(1, 0, 0))
			checkSum(t, "twice", &s, want)
			checkNormal(t, "twice", &s)
		}
	}
}

// TestSquareSumCarries: one more on a long row of full digits.
func TestSquareSumCarries(t *testing.T) {
	var s SquareSum
	for i := range squareDigits - 1 {
		s[i] = math.MaxUint32
	}
	want := exact(&s)
	s.AddScaled(0, 1, 0)
	checkSum(t, "carry", &s, want.Add(want, big.NewInt(1)))
	checkNormal(t, "carry", &s)
}

// TestSquareSumTies: a tie goes to even, and the last unit breaks it.
func TestSquareSumTies(t *testing.T) {
	for _, shift := range []int{0, 1, 31, 32, 33, 200, 440} {
		for _, odd := range []uint64{0, 1} {
			base := uint64(1)<<52 | odd
			for _, tail := range []uint64{0, 1, 3, 1<<10 - 1, 1 << 10, 1<<10 + 1, 1<<11 - 1} {
				var s SquareSum
				s.AddScaled(0, base<<11|tail, shift)
				checkSum(t, "tie", &s, wide(0, base<<11|tail, shift))
				for low := 0; low < shift; low += 9 { // one unit, near and far below
					broken := s
					broken.AddScaled(0, 1, low)
					v := wide(0, base<<11|tail, shift)
					checkSum(t, "broken tie", &broken, v.Add(v, wide(0, 1, low)))
				}
			}
		}
	}
}

// TestSquareSumHuge: 2^40 squares of the largest float32, the smallest
// subnormal, and both together.
func TestSquareSumHuge(t *testing.T) {
	const mantissa = 1<<24 - 1
	square := uint64(mantissa) * mantissa
	hi, lo := square>>24, square<<40
	var s SquareSum
	s.AddScaled(hi, lo, 506)
	want := wide(hi, lo, 506)
	checkSum(t, "2^40 largest", &s, want)
	s.AddScaled(0, 1, 0)
	checkSum(t, "and the smallest", &s, want.Add(want, big.NewInt(1)))
	var small SquareSum
	small.AddScaled(0, 1, 0)
	if got := small.Sum(); got != 0x1p-298 {
		t.Errorf("smallest square = %x, want 0x1p-298", got)
	}
}

// TestSquareSumRanks: digits added rank by rank without a carry give the sum of
// the values, in any order.
func TestSquareSumRanks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, ranks := range []int{0, 1, 2, 3, 7, 64} {
		parts := make([]SquareSum, ranks)
		want := new(big.Int)
		for i := range parts {
			for range 20 {
				hi, lo, shift := r.Uint64()>>r.IntN(64), r.Uint64(), r.IntN(420)
				parts[i].AddScaled(hi, lo, shift)
				want.Add(want, wide(hi, lo, shift))
			}
		}
		var up, down SquareSum
		for i := range parts {
			up.Add(&parts[i])
			down.Add(&parts[ranks-1-i])
		}
		checkSum(t, "ranks", &up, want)
		if up != down {
			t.Errorf("%d ranks: the order shows in the digits", ranks)
		}
		up.AddScaled(0, 0, 0) // may follow an all-reduce
		checkSum(t, "ranks, then a kernel", &up, want)
	}
	full := SquareSum{}
	for i := range squareDigits {
		full[i] = math.MaxUint64 // more than 2^32 ranks with full digits give
	}
	checkSum(t, "full digits", &full, exact(&full))
}

func TestSquareSumSpecials(t *testing.T) {
	var s SquareSum
	if got := s.Sum(); got != 0 || math.Signbit(got) {
		t.Errorf("empty sum = %v, want +0", got)
	}
	s.AddScaled(0, 5, 100)
	s[SquareInf]++
	if got := s.Sum(); !math.IsInf(got, 1) {
		t.Errorf("with an infinity: %v, want +Inf", got)
	}
	var o SquareSum
	o[SquareNaN]++
	s.Add(&o)
	if got := s.Sum(); got == got {
		t.Errorf("with a NaN: %v, want NaN", got)
	}
}
