package kerneltest_test

import (
	"github.com/lockstep-ml/lockstep/kernels"
)

type (
	embedKeepsSign  struct{ kernels.Backend }
	embedSkips      struct{ kernels.Backend }
	embedLastWins   struct{ kernels.Backend }
	embedDescending struct{ kernels.Backend }
	maxPositiveZero struct{ kernels.Backend }
	maxSpreadsNaN   struct{ kernels.Backend }
	targetKeepsSign struct{ kernels.Backend }
	expSumUngrouped struct{ kernels.Backend }
	expSumSerial    struct{ kernels.Backend }
	ignoredStays    struct{ kernels.Backend }
	scaleBefore     struct{ kernels.Backend }
	targetUnshifted struct{ kernels.Backend }
)

func lossMutants(b kernels.Backend) []mutant {
	return []mutant{
		{"Embedding", "-0 stays -0", embedKeepsSign{b}},
		{"Embedding", "rows outside the table are left alone", embedSkips{b}},
		{"EmbeddingGrad", "the last of repeated tokens wins", embedLastWins{b}},
		{"EmbeddingGrad", "tokens descending", embedDescending{b}},
		{"LogitsMax", "+0 is greater than -0", maxPositiveZero{b}},
		{"LogitsMax", "a NaN is the maximum", maxSpreadsNaN{b}},
		{"LogitsMax", "a target of -0 stays -0", targetKeepsSign{b}},
		{"LogitsExpSum", "groups ignored", expSumUngrouped{b}},
		{"LogitsExpSum", "sums one after the other", expSumSerial{b}},
		{"CrossEntropy", "ignored rows keep their exponentials", ignoredStays{b}},
		{"CrossEntropy", "scales before it subtracts the target", scaleBefore{b}},
		{"CrossEntropy", "ignores the first column's index", targetUnshifted{b}},
		{"CrossEntropy", "rounds only at the end", wide{b}},
	}
}

// inTable reports the row of a token, and whether it is there.
func inTable(token int32, first, rows int) (int, bool) {
	i := int(token) - first
	return i, i >= 0 && i < rows
}

func (m embedKeepsSign) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	m.Backend.Embedding(x, table, tokens, first)
	for i, t := range tokens {
		if r, ok := inTable(t, first, table.Rows); ok {
			m.Copy(x.RowRange(i, i+1), table.RowRange(r, r+1))
		}
	}
}

func (m embedSkips) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	for i, t := range tokens {
		if _, ok := inTable(t, first, table.Rows); ok {
			m.Backend.Embedding(x.RowRange(i, i+1), table, tokens[i:i+1], first)
		}
	}
}

func (m embedLastWins) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	seen := map[int32]bool{}
	for i := len(tokens) - 1; i >= 0; i-- {
		if !seen[tokens[i]] {
			m.Backend.EmbeddingGrad(dtable, dx.RowRange(i, i+1), tokens[i:i+1], first)
		}
		seen[tokens[i]] = true
	}
}

func (m embedDescending) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	for i := len(tokens) - 1; i >= 0; i-- {
		m.Backend.EmbeddingGrad(dtable, dx.RowRange(i, i+1), tokens[i:i+1], first)
	}
}

func (m maxPositiveZero) LogitsMax(top, target, z kernels.Tensor, targets []int32, first int) {
	m.Backend.LogitsMax(top, target, z, targets, first)
	x := get(m, top)
	for i := range x {
		x[i] += 0 // -0 becomes +0
	}
	put(m, top, x)
}

func (m maxSpreadsNaN) LogitsMax(top, target, z kernels.Tensor, targets []int32, first int) {
	m.Backend.LogitsMax(top, target, z, targets, first)
	x := get(m, top)
	for i, v := range get(m, z) {
		if v != v {
			x[i/z.Cols] = v
		}
	}
	put(m, top, x)
}

func (m targetKeepsSign) LogitsMax(top, target, z kernels.Tensor, targets []int32, first int) {
	m.Backend.LogitsMax(top, target, z, targets, first)
	x, y := get(m, target), get(m, z)
	for i, t := range targets {
		if c, ok := inTable(t, first, z.Cols); ok {
			x[i] = y[i*z.Cols+c]
		}
	}
	put(m, target, x)
}

func (m expSumUngrouped) LogitsExpSum(sum, z, top kernels.Tensor, _ []int) {
	m.Backend.LogitsExpSum(sum, z, top, nil)
}

func (m expSumSerial) LogitsExpSum(sum, z, top kernels.Tensor, groups []int) {
	m.Backend.LogitsExpSum(sum, z, top, groups)
	x := make([]float32, z.Rows)
	for i, v := range get(m, z) {
		x[i/z.Cols] += v
	}
	put(m, sum, x)
}

func (m ignoredStays) CrossEntropy(nll, z, sum, top, target kernels.Tensor, targets []int32, first int, invN float64) {
	old := get(m, z)
	m.Backend.CrossEntropy(nll, z, sum, top, target, targets, first, invN)
	for i, t := range targets {
		if t < 0 {
			put(m, z.RowRange(i, i+1), old[i*z.Cols:(i+1)*z.Cols])
		}
	}
}

func (m scaleBefore) CrossEntropy(nll, z, sum, top, target kernels.Tensor, targets []int32, first int, invN float64) {
	old, s, n := get(m, z), get(m, sum), float32(invN)
	m.Backend.CrossEntropy(nll, z, sum, top, target, targets, first, invN)
	x := get(m, z)
	for i := range x {
		if t := targets[i/z.Cols]; t >= 0 {
			x[i] = float32(old[i]/s[i/z.Cols]) * n
			if int(t)-first == i%z.Cols {
				x[i] -= n
			}
		}
	}
	put(m, z, x)
}

func (m targetUnshifted) CrossEntropy(nll, z, sum, top, target kernels.Tensor, targets []int32, _ int, invN float64) {
	m.Backend.CrossEntropy(nll, z, sum, top, target, targets, 0, invN)
}

func (m wide) CrossEntropy(nll, z, sum, top, target kernels.Tensor, targets []int32, first int, invN float64) {
	m.over(func(k kernels.Kernels, t []kernels.Tensor) {
		k.CrossEntropy(t[0], t[1], t[2], t[3], t[4], targets, first, invN)
	}, nll, z, sum, top, target)
}
