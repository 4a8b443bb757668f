package main

import (
	"math/bits"

	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// generate emits the function: start the accumulators, run the k loop, the
// triangle, add finished sums, store.
func (t tile) generate() {
	build.TEXT(t.Func(), build.NOSPLIT, "func(p *byte)")
	build.Pragma("noescape")
	build.Load(build.Param("p"), args)
	t.setMask()
	t.start()
	for _, f := range []struct {
		off int
		r   reg.GPPhysical
	}{{offK, k}, {offA, a}, {offLda, lda}, {offB, b}, {offLdb, ldb}, {offC, c}, {offLdc, ldc}} {
		build.MOVQ(arg(f.off), f.r)
	}
	t.pointers()
	if t.Cols {
		t.triangleFirst()
	}
	t.loop()
	if !t.Cols {
		t.triangleLast()
	}
	if !t.Cols { // k-major A has no groups
		t.merge()
	}
	t.eachRow(c, ldc, func(i int) {
		for v := range t.Vectors {
			t.store(t.acc(i, v), v, t.vector(c, v))
		}
	})
	build.VZEROUPPER()
	build.RET()
}

func (t tile) setMask() {
	switch {
	case !t.Masked:
	case t.Wide():
		build.MOVQ(arg(offMask), count)
		build.KMOVW(reg.EAX, reg.K1)
	default:
		build.MOVQ(arg(offMaskRow), count)
		build.VMOVUPS(operand.Mem{Base: count}, t.mask())
	}
}

// start sets the accumulators to +0, or to the stored values where the chains
// continue.
func (t tile) start() {
	build.MOVQ(arg(offIn), temp)
	build.TESTQ(temp, temp)
	build.JNE(operand.LabelRef("stored"))
	for i := range t.Rows * t.Vectors {
		t.Zero(t.Physical(i))
	}
	build.JMP(operand.LabelRef("started"))
	build.Label("stored")
	build.MOVQ(arg(offLdin), fourth)
	t.eachRow(temp, fourth, func(i int) {
		for v := range t.Vectors {
			t.load(t.vector(temp, v), v, t.acc(i, v))
		}
	})
	build.Label("started")
}

// pointers sets up row addressing and, in tiles of full height, prefetching: of
// the next tile's C during the first steps, then of the next panel of A.
func (t tile) pointers() {
	if !t.Cols {
		build.LEAQ(operand.Mem{Base: a, Index: lda, Scale: 4}, fourth)
		build.LEAQ(operand.Mem{Base: lda, Index: lda, Scale: 2}, lda3)
	}
	if t.unroll > 1 {
		build.MOVQ(arg(offNext), next)
		build.MOVQ(arg(offAhead), ahead)
		build.MOVQ(operand.U32(uint32(t.Rows)), left)
	}
}

// value is the A value of row i at step u from where the pointers stand.
func (t tile) value(i, u int) operand.Mem {
	if t.Cols {
		return operand.Mem{Base: a, Disp: 4 * i}
	}
	m := operand.Mem{Base: a, Disp: 4 * u}
	if i >= 4 {
		m.Base, i = fourth, i-4
	}
	switch i {
	case 1, 2:
		m.Index, m.Scale = lda, uint8(i)
	case 3:
		m.Index, m.Scale = lda3, 1
	}
	return m
}

// step is one k: rows lo to hi take their product.
func (t tile) step(u, lo, hi int) {
	for v := range t.Vectors {
		t.load(t.vector(b, v), v, t.bvec(v))
	}
	for i := lo; i < hi; i++ {
		build.VBROADCASTSS(t.value(i, u), t.spread(i))
		for v := range t.Vectors {
			build.VFMADD231PS(t.bvec(v), t.spread(i), t.acc(i, v))
		}
	}
	if t.Cols {
		build.ADDQ(lda, a)
	}
	build.ADDQ(ldb, b)
}

// advance moves row-major A by n steps.
func (t tile) advance(n int) {
	if t.Cols {
		return
	}
	build.ADDQ(operand.Imm(uint64(4*n)), a)
	if t.Rows > 4 {
		build.ADDQ(operand.Imm(uint64(4*n)), fourth)
	}
}

// loop runs all k.
func (t tile) loop() {
	if t.unroll > 1 {
		build.MOVQ(k, count)
		build.SHRQ(operand.Imm(uint64(bits.Len(uint(t.unroll))-1)), count)
		build.JE(operand.LabelRef("rest"))
		emit.Align(64)
		build.Label("loop")
		t.prefetch()
		for u := range t.unroll {
			t.step(u, 0, t.Rows)
		}
		t.advance(t.unroll)
		build.DECQ(count)
		build.JNE(operand.LabelRef("loop"))
		build.Label("rest")
		build.ANDQ(operand.Imm(uint64(t.unroll-1)), k)
	} else {
		build.TESTQ(k, k)
	}
	build.JE(operand.LabelRef("summed"))
	build.Label("single")
	t.step(0, 0, t.Rows)
	t.advance(1)
	build.DECQ(k)
	build.JNE(operand.LabelRef("single"))
	build.Label("summed")
}

func (t tile) prefetch() {
	for v := 0; v < t.Vectors*t.Bytes(); v += 64 {
		build.PREFETCHT0(operand.Mem{Base: ahead, Disp: v})
	}
	build.ADDQ(ldc, ahead)
	build.DECQ(left)
	build.CMOVQLE(next, ahead)
	build.PREFETCHT0(operand.Mem{Base: next})
	step := 4 * t.unroll
	if t.Cols {
		build.PREFETCHT0(operand.Mem{Base: next, Disp: 64})
		step *= t.Rows
	}
	build.ADDQ(operand.U32(uint32(step)), next)
}

// triangleLast: row i has i more steps than row 0, as a query sees one key more
// than the query before it.
func (t tile) triangleLast() {
	if t.Rows == 1 {
		return
	}
	build.CMPQ(arg(offTriangle), operand.Imm(0))
	build.JE(operand.LabelRef("notriangle"))
	for u := range t.Rows - 1 {
		t.step(u, u+1, t.Rows)
	}
	build.Label("notriangle")
}

// triangleFirst: of the first steps, step u is taken by rows 0 to u, as a key
// is seen from its own query on.
func (t tile) triangleFirst() {
	build.CMPQ(arg(offTriangle), operand.Imm(0))
	build.JE(operand.LabelRef("notriangle"))
	for u := range t.Rows {
		t.step(0, 0, u+1)
	}
	build.Label("notriangle")
}

// merge adds finished sums of earlier groups to this one.
func (t tile) merge() {
	build.MOVQ(arg(offMerges), count)
	build.TESTQ(count, count)
	build.JE(operand.LabelRef("store"))
	build.LEAQ(arg(offMerge), fourth)
	build.Label("merge")
	build.MOVQ(operand.Mem{Base: fourth}, temp)
	build.MOVQ(operand.Mem{Base: fourth, Disp: 8}, left)
	t.eachRow(temp, left, func(i int) {
		for v := range t.Vectors {
			if t.partial(v) {
				t.load(t.vector(temp, v), v, t.bvec(v))
				build.VADDPS(t.acc(i, v), t.bvec(v), t.acc(i, v))
			} else {
				build.VADDPS(t.vector(temp, v), t.acc(i, v), t.acc(i, v))
			}
		}
	})
	build.ADDQ(operand.Imm(16), fourth)
	build.DECQ(count)
	build.JNE(operand.LabelRef("merge"))
	build.Label("store")
}
