// Command tile generates the register tiles of the matrix products: for each
// number of rows and vectors a function that runs one piece of the chains of
// all elements of a tile of C, with the tile in registers.
//
// Tiles called rows read A row by row (row-major), tiles called cols read the A
// values of one k side by side (k-major). Masked tiles touch only some columns
// of the last vector of B and C.
package main

import (
	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of tileArgs in package cpu.
const (
	offK = 8 * iota
	offA
	offLda
	offB
	offLdb
	offC
	offLdc
	offIn
	offLdin
	offTriangle
	offMerges
	offMask
	offMaskRow
	offNext
	offAhead
	offMerge
)

// tile is one function.
type tile struct {
	emit.Tile
	unroll int // 1 in tiles that only edges use
}

// Registers by use.
var (
	args, k, a, lda, b, ldb, c, ldc = reg.RDI, reg.RCX, reg.RSI, reg.R8, reg.RDX, reg.R9, reg.RBX, reg.R10
	fourth, lda3                    = reg.R12, reg.R11 // A from row 4 on; three times lda
	next, ahead, left               = reg.R14, reg.R15, reg.R13
	count, temp                     = reg.RAX, reg.R11
)

func (t tile) acc(i, v int) reg.VecPhysical { return t.Physical(i*t.Vectors + v) }
func (t tile) bvec(v int) reg.VecPhysical   { return t.Physical(t.Rows*t.Vectors + v) }

// spread is the broadcast register of row i; several of them let loads run
// ahead.
func (t tile) spread(i int) reg.VecPhysical {
	first := (t.Rows + 1) * t.Vectors
	free := 32 - first
	if !t.Wide() {
		free = 15 - first // the last one holds the mask
		if !t.Masked {
			free++
		}
	}
	return t.Physical(first + i%min(free, 4))
}

// mask is the register that selects columns of the last vector.
func (t tile) mask() reg.VecPhysical { return t.Physical(15) }

func (t tile) partial(v int) bool { return t.Masked && v == t.Vectors-1 }

// load reads vector v of a row.
func (t tile) load(m operand.Mem, v int, dst reg.Register) {
	switch {
	case !t.partial(v):
		build.VMOVUPS(m, dst)
	case t.Wide():
		build.VMOVUPS_Z(m, reg.K1, dst)
	default:
		build.VMASKMOVPS(m, t.mask(), dst)
	}
}

// store writes vector v of a row.
func (t tile) store(src reg.Register, v int, m operand.Mem) {
	switch {
	case !t.partial(v):
		build.VMOVUPS(src, m)
	case t.Wide():
		build.VMOVUPS(src, reg.K1, m)
	default:
		build.VMASKMOVPS(src, t.mask(), m)
	}
}

// vector is vector v of the row at base.
func (t tile) vector(base reg.Register, v int) operand.Mem {
	return operand.Mem{Base: base, Disp: v * t.Bytes()}
}

// eachRow walks base over the rows of a tile in memory.
func (t tile) eachRow(base, stride reg.Register, f func(i int)) {
	for i := range t.Rows {
		f(i)
		if i+1 < t.Rows {
			build.ADDQ(stride, base)
		}
	}
}

func arg(off int) operand.Mem { return operand.Mem{Base: args, Disp: off} }

func main() {
	for _, s := range []emit.ISA{emit.AVX512(), emit.AVX2()} {
		for _, t := range emit.Tiles(s) {
			unroll := 1
			if !t.Masked && t.Rows == emit.MostRows(s, t.Vectors, t.Cols) {
				unroll = 4
			}
			tile{t, unroll}.generate()
		}
		transpose(s)
		panels(s)
	}
	strips()
	build.Generate()
}
