package cpu

import "golang.org/x/sys/cpu"

// detect lists the instruction sets of this processor, the best one first.
func detect() []*isa {
	var found []*isa
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA && x.HasBMI2 && x.HasPOPCNT
	if avx2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		found = append(found, &isa{name: AVX512, lanes: 16, rowsWide: 4, colsWide: 3, directStride: 512,
			tileTable: tilesAVX512(), vectorTable: vectorsAVX512(), routines: routinesAVX512()})
	}
	if avx2 {
		found = append(found, &isa{name: AVX2, lanes: 8, rowsWide: 2, colsWide: 2, directStride: 192,
			tileTable: tilesAVX2(), vectorTable: vectorsAVX2(), routines: routinesAVX2()})
	}
	for _, s := range found {
		s.control = floatControl
	}
	return found
}
