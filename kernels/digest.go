package kernels

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Digest is the additive hash of a set of elements: sums modulo 2^64 of two
// mixes of (tensor id, global element index, bits), so slices of a tensor add
// up to the digest of the whole, in any order and without a gather. NonFinite
// counts elements that are NaN or infinite.
type Digest struct {
	A, B      uint64
	NonFinite uint64
}

// Multipliers of the mixes: odd constants of splitmix64 and murmur3.
const (
	hashIndex = 0x9e3779b97f4a7c15
	hashBits  = 0xbf58476d1ce4e5b9
	hashMixA  = 0x94d049bb133111eb
	hashMixB  = 0xff51afd7ed558ccd
)

// Mix is the contribution of one element: with wrapping 64-bit arithmetic,
//
//	x = (id + (index+1)*hashIndex) ^ (bits*hashBits + hashBits)
//	x = (x ^ x>>32) * hashMixA;  a = x ^ x>>29
//	y = (a ^ a>>32) * hashMixB;  b = y ^ y>>32
func Mix(id, index, bits uint64) (a, b uint64) {
	x := (id + (index+1)*hashIndex) ^ (bits*hashBits + hashBits)
	x = (x ^ x>>32) * hashMixA
	a = x ^ x>>29
	y := (a ^ a>>32) * hashMixB
	return a, y ^ y>>32
}

// CanonicalNaN is how every NaN is hashed and compared.
const CanonicalNaN = 0x7fc00000

// Bits gives the bits of x under which it is compared and hashed.
func Bits(x float32) uint32 {
	if x != x {
		return CanonicalNaN
	}
	return math.Float32bits(x)
}

// Add adds the elements of o.
func (d *Digest) Add(o Digest) {
	d.A += o.A
	d.B += o.B
	d.NonFinite += o.NonFinite
}

// String is the digest as 32 hexadecimal digits.
func (d Digest) String() string { return fmt.Sprintf("%016x%016x", d.A, d.B) }

// MarshalText is String, followed by "!n" where n elements are not finite.
func (d Digest) MarshalText() ([]byte, error) {
	if d.NonFinite > 0 {
		return fmt.Appendf(nil, "%s!%d", d, d.NonFinite), nil
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(b []byte) error {
	var raw [16]byte
	if len(b) < 32 {
		return fmt.Errorf("digest %q: want 32 hexadecimal digits", b)
	}
	if _, err := hex.Decode(raw[:], b[:32]); err != nil {
		return fmt.Errorf("digest %q: %w", b, err)
	}
	*d = Digest{A: binary.BigEndian.Uint64(raw[:8]), B: binary.BigEndian.Uint64(raw[8:])}
	rest := string(b[32:])
	if rest == "" {
		return nil
	}
	count, ok := strings.CutPrefix(rest, "!")
	n, err := strconv.ParseUint(count, 10, 64)
	if !ok || err != nil {
		return fmt.Errorf("digest %q: want \"!\" and a count after the digits", b)
	}
	d.NonFinite = n
	return nil
}

// TensorID is the id of a named tensor in digests and in the generator of
// initial weights: FNV-1a of its name.
func TensorID(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}
