package suite

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// The memory of a device is written in chunks, each with the same pattern from another
// place on: of a prime number of places, so that no two chunks have the same which differ
// in one line of the address.
const (
	mostChunk  = 1 << 24 // elements
	leastChunk = 1 << 10
	turns      = 31
)

// memory writes most of the memory of a device, or a part of it that is given, all of it
// before any is compared, twice: once with each bit inverted.
func (s surveying) memory(ctx context.Context, be kernels.Backend) (trace.Event, error) {
	e := trace.Event{Kind: trace.KindDevice, What: trace.Kept, Bytes: s.Bytes}
	if l, ok := kernels.LocatedOf(be); ok && s.Percent > 0 {
		spare, err := l.Spare()
		if err != nil {
			return e, err
		}
		e.Bytes = int64(spare / 100 * uint64(s.Percent))
	}
	chunk := int(max(leastChunk, min(mostChunk, e.Bytes/4/16)))
	b := &block{memory: memory{Backend: be}, host: newHost(), until: time.Now().Add(memoryTime), ctx: ctx}
	defer b.free()
	base := b.alloc(chunk)
	if b.err != nil {
		return e, b.err
	}
	n := max(1, int(e.Bytes/4)/chunk-1) // the pattern is one of them
	for range n {
		t := b.alloc(chunk)
		if b.err != nil {
			break // what is less than there should be, the clause sees
		}
		b.chunks = append(b.chunks, t)
	}
	e.Bytes = 4 * int64(chunk) * int64(n)
	e.Count = int64(chunk) * int64(len(b.chunks))
	for _, invert := range []uint32{0, math.MaxUint32} {
		done, err := b.pass(base, pattern(s.Seed, chunk, invert), &e)
		if err != nil || e.Text != "" {
			return e, err
		}
		e.Count = min(e.Count, int64(chunk)*int64(done))
	}
	return e, nil
}

// pattern is n elements of which none is NaN, inverted or not.
func pattern(seed uint64, n int, invert uint32) []float32 {
	out := make([]float32, n)
	for i := range out {
		bits := uint32(mix(seed + uint64(i)*0x9e3779b97f4a7c15))
		if x := bits >> 23 & 255; x == 0 || x == 255 {
			bits ^= 1 << 23 // else it is NaN, or its inverse is
		}
		out[i] = math.Float32frombits(bits ^ invert)
	}
	return out
}

// block is the memory of a device that is tried.
type block struct {
	memory
	host   *host
	chunks []kernels.Tensor
	until  time.Time
	ctx    context.Context
}

// over reports whether there is no time left.
func (b *block) over() bool { return b.ctx.Err() != nil || time.Now().After(b.until) }

// shift is from where on a chunk has the pattern.
func (b *block) shift(i, n int) int { return i % turns * (n / turns) }

// pass writes the pattern everywhere and compares; done is in how many chunks. What is
// wrong is in e.
func (b *block) pass(base kernels.Tensor, x []float32, e *trace.Event) (done int, err error) {
	n := len(x)
	b.Write(base, x)
	written := 0
	for i, t := range b.chunks {
		if b.over() {
			break
		}
		at := b.shift(i, n)
		b.Copy(t.Range(0, n-at), base.Range(at, n))
		b.Copy(t.Range(n-at, n), base.Range(0, at))
		if written++; i%64 == 63 {
			if err := b.Sync(); err != nil {
				return 0, err
			}
		}
	}
	must := map[int]kernels.Digest{}
	for i, t := range b.chunks[:written] {
		if b.over() {
			break
		}
		at := b.shift(i, n)
		if _, known := must[at]; !known {
			must[at] = b.host.digest(b.host.shifted(x, at))
		}
		got, err := b.host.compare(b, t, must[at], func() kernels.Tensor { return b.host.shifted(x, at) })
		if err != nil {
			return done, err
		}
		if got.Text != "" {
			e.Index, e.Got, e.Want = int64(i)*int64(n)+got.Index, got.Got, got.Want
			e.Text = fmt.Sprintf("memory at address %#x does not keep what is written to it: %s", b.Span(t).Lo+4*uint64(got.Index), got.Text)
			return done, nil
		}
		done++
	}
	return done, b.ctx.Err()
}
