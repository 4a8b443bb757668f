package independent

import (
	"fmt"
	"math"
)

// Digest is the hash of a set of elements of named tensors: the sums modulo 2^64
// of two mixes of every element's tensor, place and bits, and the number of
// elements that are not finite.
type Digest struct{ A, B, NonFinite uint64 }

// String is 32 hexadecimal digits, A first, and "!n" where n elements are not
// finite.
func (d Digest) String() string {
	s := fmt.Sprintf("%016x%016x", d.A, d.B)
	if d.NonFinite > 0 {
		s += fmt.Sprintf("!%d", d.NonFinite)
	}
	return s
}

// Identity is the number of a tensor: the 64-bit FNV-1a hash of its name.
func Identity(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range []byte(name) {
		h ^= uint64(c)
		h *= 0x100000001b3
	}
	return h
}

// Add adds the elements of a tensor from a place on, in row-major order of the
// whole tensor. All NaN count as one.
func (d *Digest) Add(tensor string, first int, x []float32) {
	id := Identity(tensor)
	for i, f := range x {
		bits := math.Float32bits(f)
		if math.IsNaN(float64(f)) {
			bits = 0x7fc00000
		}
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			d.NonFinite++
		}
		d.mix(id, first+i, bits)
	}
}

// AddIntegers is Add for integers of 32 bits.
func (d *Digest) AddIntegers(tensor string, first int, x []int32) {
	id := Identity(tensor)
	for i, v := range x {
		d.mix(id, first+i, uint32(v))
	}
}

func (d *Digest) mix(id uint64, at int, bits uint32) {
	const (
		byPlace = 0x9e3779b97f4a7c15
		byBits  = 0xbf58476d1ce4e5b9
	)
	h := (id + uint64(at+1)*byPlace) ^ ((uint64(bits) + 1) * byBits)
	h ^= h >> 32
	h *= 0x94d049bb133111eb
	h ^= h >> 29
	d.A += h
	h ^= h >> 32
	h *= 0xff51afd7ed558ccd
	h ^= h >> 32
	d.B += h
}
