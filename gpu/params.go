//go:build cuda

package gpu

import (
	"encoding/binary"
	"math"
)

// Params are the parameters of a launch, packed as kernels declare them: in order, each
// aligned to its size. The zero value has none. It keeps its memory over Reset, so that one
// that is used again allocates nothing.
type Params struct{ bytes []byte }

// Reset takes all parameters away, and gives p.
func (p *Params) Reset() *Params {
	p.bytes = p.bytes[:0]
	return p
}

// align makes room up to a multiple of n.
func (p *Params) align(n int) {
	for len(p.bytes)%n != 0 {
		p.bytes = append(p.bytes, 0)
	}
}

// U64 adds a number of 8 bytes, and gives p.
func (p *Params) U64(v uint64) *Params {
	p.align(8)
	p.bytes = binary.LittleEndian.AppendUint64(p.bytes, v)
	return p
}

// U32 adds a number of 4 bytes, and gives p.
func (p *Params) U32(v uint32) *Params {
	p.align(4)
	p.bytes = binary.LittleEndian.AppendUint32(p.bytes, v)
	return p
}

// I32 adds a number of 4 bytes with a sign, and gives p.
func (p *Params) I32(v int32) *Params { return p.U32(uint32(v)) }

// F32 adds a float32, and gives p.
func (p *Params) F32(v float32) *Params { return p.U32(math.Float32bits(v)) }

// F64 adds a float64, and gives p.
func (p *Params) F64(v float64) *Params { return p.U64(math.Float64bits(v)) }

// Pointer adds the address of b, from an offset in bytes on, and gives p. A nil b is a null
// pointer.
func (p *Params) Pointer(b *Buffer, offset int) *Params {
	if b == nil {
		return p.U64(0)
	}
	return p.U64(b.addr + uint64(offset))
}

// Struct adds a structure that is aligned to align bytes, as it lies in memory, and gives p.
func (p *Params) Struct(align int, b []byte) *Params {
	p.align(align)
	p.bytes = append(p.bytes, b...)
	return p
}
