package drill

import (
	"github.com/lockstep-ml/lockstep/kernels"
)

// DigestFloats digests a result that is elements [lo, hi) of buf, and the guards at
// the two ends of buf. What lies beside the result is not part of it.
func DigestFloats(buf []float32, lo, hi int) kernels.Digest {
	var d digester
	for j, v := range buf {
		if j >= lo && j < hi || j < Guards || j >= len(buf)-Guards {
			d.float(j, v)
		}
	}
	return d.sum
}

// DigestWords digests the result of an all-reduce of integers.
func DigestWords(x []uint64) kernels.Digest {
	var d digester
	for i, v := range x {
		d.word(i, v)
	}
	return d.sum
}

// DigestBytes digests the result of an all-gather of bytes.
func DigestBytes(all [][]byte) kernels.Digest {
	var d digester
	for g, b := range all {
		d.bytes(g, b)
	}
	return d.sum
}

// DigestGroup digests the ranks, in the world, of a group that a split made, and
// this rank's place among them.
func DigestGroup(ranks []int, me int) kernels.Digest {
	var d digester
	d.word(0, uint64(me))
	for i, r := range ranks {
		d.word(i+1, uint64(r))
	}
	return d.sum
}

// digester collects the digest of a result.
type digester struct{ sum kernels.Digest }

// word adds a 64-bit element.
func (d *digester) word(i int, v uint64) {
	a, b := kernels.Mix(0, uint64(i), v)
	d.sum.Add(kernels.Digest{A: a, B: b})
}

// float adds an element at place i of its buffer.
func (d *digester) float(i int, v float32) {
	d.word(i, uint64(kernels.Bits(v)))
	if v-v != 0 { // NaN or infinite
		d.sum.NonFinite++
	}
}

// bytes adds the bytes that came from the g-th rank, and their number.
func (d *digester) bytes(g int, b []byte) {
	h := uint64(len(b))
	for _, v := range b {
		h = hash(h, uint64(v))
	}
	d.word(g, h)
}
