package drill

import (
	"fmt"
	"iter"

	"github.com/lockstep-ml/lockstep/kernels"
)

// table collects the cases of one kernel.
type table struct {
	kernel string
	seed   uint64
	level  int // of the cases that are added
	cases  []*Case
}

// call is a kernel that sets tensors only.
type call func(k kernels.Kernels, t []kernels.Tensor)

// add appends a case. Offsets go with its number: 16 cases run through 0..15
// with all operands aligned alike, the next 16 have each operand anywhere, and
// so on; every third case has its operands in one buffer.
func (tb *table) add(name string, work int, f call, ops ...operand) *testCase {
	i := len(tb.cases)
	c := &testCase{
		ops: ops, seed: hash(hashName(tb.seed, tb.kernel), uint64(i)), shared: i%3 == 2,
		call: func(k kernels.Kernels, t []kernels.Tensor) any {
			f(k, t)
			return nil
		},
	}
	for j := range ops {
		off := i % 16
		if i/16%2 == 1 {
			off = int(hash(c.seed, uint64(j)) % 16)
		}
		c.offs = append(c.offs, off)
		if a := ops[j].alias; a >= 0 && ops[a].role == input {
			ops[a].role = output
		}
	}
	tb.cases = append(tb.cases, &Case{Kernel: tb.kernel, Name: fmt.Sprintf("%s_%d", name, i), Level: tb.level, Work: work, Elements: c.elements(), expect: c.expect})
	return c
}

// kernelTable names a kernel and fills its table.
type kernelTable struct {
	name string
	fill func(*table)
}

// kernelTables lists every method of kernels.Kernels.
func kernelTables() []kernelTable {
	return []kernelTable{
		{"Fill", fillCases}, {"Copy", copyCases}, {"Add", addCases}, {"Scale", scaleCases},
		{"AddBias", addBiasCases}, {"Residual", residualCases}, {"ColumnSum", columnSumCases},
		{"MatMulNT", matMulNTCases}, {"MatMulNN", matMulNNCases}, {"MatMulTN", matMulTNCases},
		{"RMSNorm", rmsNormCases}, {"RMSNormGrad", rmsNormGradCases}, {"Rope", ropeCases},
		{"Attention", attentionCases}, {"AttentionGrad", attentionGradCases},
		{"SwiGLU", swiGLUCases}, {"SwiGLUGrad", swiGLUGradCases},
		{"Embedding", embeddingCases}, {"EmbeddingGrad", embeddingGradCases},
		{"LogitsMax", logitsMaxCases}, {"LogitsExpSum", logitsExpSumCases}, {"CrossEntropy", crossEntropyCases},
		{"AdamW", adamWCases}, {"SGD", sgdCases},
		{"Reduce", reduceCases}, {"SumSquares", sumSquaresCases}, {"Hash", hashCases}, {"HashChanged", hashChangedCases},
	}
}

// edges are the sizes at which tiles of 4, 8, 16, 32, 48 and 64 begin and end.
func edges() []int {
	return []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65}
}

// residues are all lengths up to two elements more than the widest tile: of
// every vector and tile each number of elements that are left over.
func residues() []int {
	var ns []int
	for n := range 67 {
		ns = append(ns, n)
	}
	return ns
}

// lengths are residues and longer vectors, the last one long enough to be split
// over threads.
func lengths() []int {
	return append(residues(), 95, 96, 97, 100, 127, 128, 129, 257, 1023, 1024, 1025, 4099, 70001)
}

// atLevel runs f, whose cases belong to a level.
func (tb *table) atLevel(level int, f func()) {
	before := tb.level
	tb.level = level
	f()
	tb.level = before
}

// sweep pairs every length with plain values and one other kind, and three
// lengths with all kinds.
func sweep(ns []int) iter.Seq2[int, mode] {
	return func(yield func(int, mode) bool) {
		ms := modes()
		for i, n := range ns {
			for j, m := range ms {
				all := n == 5 || n == 33 || n == 65
				if (all || j == 0 || j == 1+i%(len(ms)-1)) && !yield(n, m) {
					return
				}
			}
		}
	}
}

// fold turns a length into a shape, of three rows where it divides.
func fold(n int) (rows, cols int) {
	if n > 0 && n%3 == 0 {
		return 3, n / 3
	}
	return 1, n
}

// label is the name of a vector's case.
func label(n int, m mode) string { return fmt.Sprintf("n%d_%s", n, m.name) }

// cuts gives g+1 bounds of [0, n) in one of several styles: even (the first
// n mod g groups one longer), skewed, and with empty groups at either end or
// between.
func cuts(n, g, style int) []int {
	b := make([]int, g+1)
	for i := 1; i < g; i++ {
		switch style % 4 {
		case 0:
			b[i] = i*(n/g) + min(i, n%g)
		case 1:
			b[i] = n * i * i / (g * g)
		case 2: // the second half of the groups is empty
			b[i] = min(n, 2*i*((n+g-1)/g))
		case 3: // everything in the last group but one element in the second
			b[i] = min(n, i/2)
		}
	}
	b[g] = n
	return b
}
