//go:build unix

package engine

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A frame is a header of headerBytes and a payload:
//
//	magic u32, kind u8, flags u8, phase u16, seq u64, call u64, index u32, spare u32,
//	length u64, payload CRC-32C u32, header CRC-32C u32; little endian
//
// seq is the operation of the group, or the message of the pair; call is the digest
// of what the sender called; phase and index say which piece of it this is.
type frame struct {
	kind    kind
	phase   uint16
	index   uint32
	seq     uint64
	call    uint64
	length  uint64
	payload uint32 // CRC-32C, where summed
	summed  bool
}

// kind is what a frame carries.
type kind uint8

const (
	piece kind = 1 + iota // of a collective
	message
	receipt // of a message
)

const (
	frameMagic  = 0x316b636c // "lck1"
	headerBytes = 48
	flagSummed  = 1
)

// castagnoli is CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// put writes the header.
func (f *frame) put(b *[headerBytes]byte) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], frameMagic)
	b[4], b[5] = byte(f.kind), 0
	if f.summed {
		b[5] = flagSummed
	}
	le.PutUint16(b[6:], f.phase)
	le.PutUint64(b[8:], f.seq)
	le.PutUint64(b[16:], f.call)
	le.PutUint32(b[24:], f.index)
	le.PutUint32(b[28:], 0)
	le.PutUint64(b[32:], f.length)
	le.PutUint32(b[40:], f.payload)
	le.PutUint32(b[44:], crc32.Checksum(b[:44], castagnoli))
}

// get reads a header; the error says what is wrong with it.
func (f *frame) get(b *[headerBytes]byte) error {
	le := binary.LittleEndian
	if m := le.Uint32(b[0:]); m != frameMagic {
		return fmt.Errorf("a frame begins with %#08x, want %#08x", m, uint32(frameMagic))
	}
	if got, want := le.Uint32(b[44:]), crc32.Checksum(b[:44], castagnoli); got != want {
		return fmt.Errorf("CRC-32C of a frame's header is %08x, the header says %08x", want, got)
	}
	*f = frame{kind: kind(b[4]), phase: le.Uint16(b[6:]), seq: le.Uint64(b[8:]), call: le.Uint64(b[16:]), index: le.Uint32(b[24:]),
		length: le.Uint64(b[32:]), payload: le.Uint32(b[40:]), summed: b[5] == flagSummed}
	switch {
	case b[5] > flagSummed || le.Uint32(b[28:]) != 0:
		return fmt.Errorf("a frame has flags %#x and %#x, which are unknown", b[5], le.Uint32(b[28:]))
	case f.kind < piece || f.kind > receipt:
		return fmt.Errorf("a frame is of kind %d, which is unknown", b[4])
	}
	return nil
}

// sum adds the CRC-32C of a payload.
func (f *frame) sum(payload []byte) {
	f.payload, f.summed = crc32.Checksum(payload, castagnoli), true
}

// check compares a payload that has come with its sum.
func (f *frame) check(payload []byte) error {
	if !f.summed {
		return nil
	}
	if got := crc32.Checksum(payload, castagnoli); got != f.payload {
		return fmt.Errorf("CRC-32C of %d bytes is %08x, their sender says %08x: they changed on the way", len(payload), got, f.payload)
	}
	return nil
}
