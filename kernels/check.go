package kernels

import "fmt"

// The Check functions are the shape rules of the kernels of the same name:
// they panic with "kernels: ", the kernel's name and the shapes unless the
// operands fit together and lie inside their buffers. They know shapes only, no
// values and no overlap.

// require panics unless ok holds and every tensor is present and inside its
// buffer.
func require(ok bool, kernel string, ts ...Tensor) {
	if !ok {
		misfit(kernel, ts...)
	}
	for _, t := range ts {
		if t.Absent() || !inBuffer(t) {
			misfit(kernel, ts...)
		}
	}
}

// dense is require for tensors that must also be contiguous.
func dense(ok bool, kernel string, ts ...Tensor) {
	require(ok, kernel, ts...)
	for _, t := range ts {
		if !t.Contiguous() {
			misfit(kernel, ts...)
		}
	}
}

// misfit panics with the shapes. It is apart so that the checks stay small.
//
//go:noinline
func misfit(kernel string, ts ...Tensor) {
	msg := "kernels: " + kernel + ": shapes do not fit:"
	for _, t := range ts {
		msg += " " + t.String()
	}
	panic(msg)
}

// inBuffer reports whether every element of t lies inside its buffer.
func inBuffer(t Tensor) bool {
	if t.Off < 0 || t.Rows < 0 || t.Cols < 0 || t.Rows > 1 && t.Stride < t.Cols {
		return false
	}
	if t.Rows == 0 || t.Cols == 0 {
		return t.Off <= t.Buf.Len()
	}
	return t.Off+(t.Rows-1)*t.Stride+t.Cols <= t.Buf.Len()
}

// checkGroups refuses bounds that do not cut [0, n) into ascending ranges.
func checkGroups(kernel string, groups []int, n int) {
	if groups == nil {
		return
	}
	ok := len(groups) >= 2 && groups[0] == 0 && groups[len(groups)-1] == n
	for i := 1; ok && i < len(groups); i++ {
		ok = groups[i-1] <= groups[i]
	}
	if !ok {
		panic(fmt.Sprintf("kernels: %s: groups %v do not cut [0,%d)", kernel, groups, n))
	}
}

// checkCount refuses a slice of indices whose length is not the number of rows.
func checkCount(kernel string, n, rows int) {
	if n != rows {
		panic(fmt.Sprintf("kernels: %s: %d indices for %d rows", kernel, n, rows))
	}
}

// CheckTransfer is the rule of Memory.Read and Memory.Write and their wide
// forms: n elements of a slice meet a contiguous tensor of as many.
func CheckTransfer(method string, t Tensor, n int) {
	dense(true, method, t)
	if t.Len() != n {
		panic(fmt.Sprintf("kernels: %s: %d elements for %s", method, n, t))
	}
}

// CheckFill: x is contiguous.
func CheckFill(x Tensor) { dense(true, "Fill", x) }

// CheckCopy: dst and src have the same number of elements.
func CheckCopy(dst, src Tensor) { dense(dst.Len() == src.Len(), "Copy", dst, src) }

// CheckAdd: dst, x and y have the same number of elements.
func CheckAdd(dst, x, y Tensor) {
	dense(dst.Len() == x.Len() && dst.Len() == y.Len(), "Add", dst, x, y)
}

// CheckScale: dst and x have the same number of elements.
func CheckScale(dst, x Tensor) { dense(dst.Len() == x.Len(), "Scale", dst, x) }

// CheckAddBias: b has as many elements as y has columns; rows of y may be strided.
func CheckAddBias(y, b Tensor) {
	require(b.Len() == y.Cols && b.Contiguous(), "AddBias", y, b)
}

// CheckResidual: dst, x and y have one shape; b, unless absent, has as many
// elements as they have columns.
func CheckResidual(dst, x, y, b Tensor) {
	dense(dst.Rows == x.Rows && dst.Cols == x.Cols && dst.Rows == y.Rows && dst.Cols == y.Cols, "Residual", dst, x, y)
	if !b.Absent() {
		dense(b.Len() == dst.Cols, "Residual", b, dst)
	}
}

// CheckColumnSum: dst has as many elements as x has columns; rows of x may be strided.
func CheckColumnSum(dst, x Tensor) {
	require(dst.Len() == x.Cols && dst.Contiguous(), "ColumnSum", dst, x)
}

// CheckSwiGLU: h, z and u have the same number of elements.
func CheckSwiGLU(h, z, u Tensor) {
	dense(h.Len() == z.Len() && h.Len() == u.Len(), "SwiGLU", h, z, u)
}

// CheckSwiGLUGrad: all five have the same number of elements.
func CheckSwiGLUGrad(dz, du, dh, z, u Tensor) {
	n := dz.Len()
	dense(du.Len() == n && dh.Len() == n && z.Len() == n && u.Len() == n, "SwiGLUGrad", dz, du, dh, z, u)
}

// CheckAdamW: all four have the same number of elements.
func CheckAdamW(w, m, v, g Tensor) {
	n := w.Len()
	dense(m.Len() == n && v.Len() == n && g.Len() == n, "AdamW", w, m, v, g)
}

// CheckSGD: all three have the same number of elements.
func CheckSGD(w, b, g Tensor) {
	dense(b.Len() == w.Len() && g.Len() == w.Len(), "SGD", w, b, g)
}

// CheckReduce: the destinations and the present sources have the same number of
// elements; there is at least one source, and the operation is known.
func CheckReduce(dst, src []Tensor, op Op) {
	if len(src) == 0 || op > Max {
		panic(fmt.Sprintf("kernels: Reduce: %s of %d sources", op, len(src)))
	}
	n := -1
	same := func(t Tensor) {
		if n < 0 {
			n = t.Len()
		}
		dense(t.Len() == n, "Reduce", t)
	}
	for _, t := range src {
		if !t.Absent() {
			same(t)
		}
	}
	for _, t := range dst {
		same(t)
	}
}

// CheckSumSquares: x is contiguous.
func CheckSumSquares(x Tensor) { dense(true, "SumSquares", x) }

// CheckHash: x lies inside its buffer; its rows may be strided.
func CheckHash(x Tensor) { require(true, "Hash", x) }

// CheckHashChanged: x and old have one shape.
func CheckHashChanged(x, old Tensor) {
	dense(x.Rows == old.Rows && x.Cols == old.Cols, "HashChanged", x, old)
}
