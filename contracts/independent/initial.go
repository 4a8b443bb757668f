package independent

import (
	"math"
	"strings"
)

// Initial are the weights before the first step, a function of the seed, the
// parameter's name and the element's place: 1 for norm weights, else a standard
// deviation times a number of mean 0 and variance 1, which is the sum of eight
// 16-bit integers, less its mean, over its own deviation.
//
// The integers are the two halves' halves of two words of splitmix64 (Steele,
// Lea, Flood 2014), whose sequence starts at a hash of seed and name.
func (s *Shape) Initial(p Param, seed uint64) []float32 {
	out := make([]float32, p.Len())
	deviation := s.InitStd
	switch {
	case strings.HasSuffix(p.Name, "bias"):
		deviation = s.InitBias
	case strings.HasSuffix(p.Name, "norm.weight"):
		for i := range out {
			out[i] = 1
		}
		return out
	}
	const golden = 0x9e3779b97f4a7c15
	start := scramble(scramble(seed+golden) ^ Identity(p.Name))
	sigma := 1 / math.Sqrt(8*(1<<32-1)/12.0)
	for i := range out {
		sum := 0
		for n := range uint64(2) {
			word := scramble(start + (2*uint64(i)+n+1)*golden)
			for range 4 {
				sum += int(uint16(word))
				word >>= 16
			}
		}
		out[i] = float32(deviation * (float64(sum-8*65535/2) * sigma))
	}
	return out
}

// scramble is the finaliser of splitmix64.
func scramble(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x
}
