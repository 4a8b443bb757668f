package ref

import "math"

// A block that PartSum defines has so many threads, each of which goes so many rounds.
const (
	partThreads = 128
	partRounds  = 256
)

// PartSum is what one block computes that shows whether a part of a device is sound: each
// thread roots, divides and adds numbers that depend on all before, and takes some of
// another thread's. Operations round as in package ref's kernels.
func PartSum(seed uint32) (sum uint32) {
	var u, state [partThreads]uint32
	var x [partThreads]float32
	for t := range u {
		u[t] = seed + uint32(t+1)*0x9e3779b9
		x[t] = math.Float32frombits(0x3f800000 | u[t]>>9)
	}
	for i := range partRounds {
		for t := range u {
			y := math.Float32frombits(0x3f800000 | u[t]&0x7fffff)
			half := float32(float32(x[t]+y) * 0.5)
			x[t] = float32(math.Sqrt(float64(FMA32(x[t], y, 1) / half)))
			u[t] = u[t]*1664525 + math.Float32bits(x[t])
		}
		if i%16 != 15 {
			continue
		}
		state = u
		for t := range u {
			u[t] ^= state[(t+i)%partThreads] >> 5
		}
	}
	for _, v := range u {
		sum = sum*31 + v
	}
	return sum
}
