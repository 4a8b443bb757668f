package cpu

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lockstep-ml/lockstep/kernels"
)

// numbers is how many routines and paths can be counted.
const numbers = 256

// path is a way through this package that depends on shapes and is no routine
// of assembly. Its number in the tally is firstPath more.
type path uint8

const firstPath = 160

const (
	noPath path = iota
	// Kernels shared between threads, by parts that are elements, rows, columns,
	// blocks of rows, or heads.
	pathFill
	pathCopy
	pathAdd
	pathScale
	pathAddBiasRows
	pathAddBiasColumns
	pathResidual
	pathResidualRows
	pathResidualColumns
	pathColumnSum
	pathNNRows
	pathNNColumns
	pathNTRows
	pathNTColumns
	pathTNRows
	pathTNColumns
	pathRMSNorm
	pathRMSNormGrad
	pathRope
	pathAttention
	pathAttentionGrad
	pathSwiGLU
	pathSwiGLUGrad
	pathEmbedding
	pathEmbeddingGrad
	pathLogitsMax
	pathLogitsExpSum
	pathCrossEntropy
	pathAdamW
	pathSGD
	pathReduceTwo
	pathReduceFour
	pathReduce
	pathReduceMax
	pathSumSquares
	pathHashRows
	pathHashColumns
	pathHashChangedRows
	pathHashChangedColumns
	pathWorker
	// Ways of a matrix product.
	pathLong
	pathPacked
	pathDirect
	pathBlocks
	pathLayers
	paths
)

// All numbers fit.
const _ = uint8(firstPath + paths - 1)

// pathNames are the names of paths in the tally.
func pathNames() [paths]string {
	return [paths]string{
		pathFill: "Fill, shared", pathCopy: "Copy, shared", pathAdd: "Add, shared", pathScale: "Scale, shared",
		pathAddBiasRows: "AddBias, shared by rows", pathAddBiasColumns: "AddBias, shared by columns",
		pathResidual: "Residual without bias, shared", pathResidualRows: "Residual, shared by rows", pathResidualColumns: "Residual, shared by columns",
		pathColumnSum: "ColumnSum, shared",
		pathNNRows:    "MatMulNN, shared by rows", pathNNColumns: "MatMulNN, shared by columns",
		pathNTRows: "MatMulNT, shared by rows", pathNTColumns: "MatMulNT, shared by columns",
		pathTNRows: "MatMulTN, shared by rows", pathTNColumns: "MatMulTN, shared by columns",
		pathRMSNorm: "RMSNorm, shared", pathRMSNormGrad: "RMSNormGrad, shared", pathRope: "Rope, shared",
		pathAttention: "Attention, shared", pathAttentionGrad: "AttentionGrad, shared",
		pathSwiGLU: "SwiGLU, shared", pathSwiGLUGrad: "SwiGLUGrad, shared",
		pathEmbedding: "Embedding, shared", pathEmbeddingGrad: "EmbeddingGrad, shared",
		pathLogitsMax: "LogitsMax, shared", pathLogitsExpSum: "LogitsExpSum, shared", pathCrossEntropy: "CrossEntropy, shared",
		pathAdamW: "AdamW, shared", pathSGD: "SGD, shared",
		pathReduceTwo: "Reduce of two, shared", pathReduceFour: "Reduce of four, shared",
		pathReduce: "Reduce, shared", pathReduceMax: "Reduce to the maximum, shared", pathSumSquares: "SumSquares, shared",
		pathHashRows: "Hash, shared by rows", pathHashColumns: "Hash, shared by columns",
		pathHashChangedRows: "HashChanged, shared by rows", pathHashChangedColumns: "HashChanged, shared by columns",
		pathWorker: "a part on another thread than the caller's",
		pathLong:   "a chain longer than a block of k", pathPacked: "B packed", pathDirect: "B read where it lies",
		pathBlocks: "several blocks of columns", pathLayers: "several chunks of k-major A",
	}
}

// counts are the calls of routines and paths, by number.
type counts [numbers]atomic.Uint64

func (n *counts) path(p path) { n[firstPath+p].Add(1) }

// marks are the calls of one thread that are not in the counts yet.
type marks struct {
	calls [numbers]uint32
	seen  [numbers]uint8 // the first n: the numbers whose calls are not 0
	n     uint8
}

func (m *marks) add(number uint8) {
	if m.calls[number] == 0 {
		m.seen[m.n] = number
		m.n++
	}
	m.calls[number]++
}

func (m *marks) path(p path) { m.add(uint8(firstPath + p)) }

// moveTo adds the calls to the counts, one addition for each number.
func (m *marks) moveTo(n *counts) {
	for _, i := range m.seen[:m.n] {
		n[i].Add(uint64(m.calls[i]))
		m.calls[i] = 0
	}
	m.n = 0
}

// Tally implements kernels.Tallier: the routines of the instruction set, the
// paths that share a kernel between threads, where there are several, and the
// ways of a matrix product. Calls of routines that store past the caches are
// counted apart. Plain Go gives nothing.
func (b *Backend) Tally() []kernels.Routine {
	if b.isa == nil {
		return nil
	}
	var out []kernels.Routine
	unused := b.unused()
	for i, name := range b.isa.routines {
		if !slices.Contains(unused, strings.Replace(name, strings.ToUpper(b.isa.name), "", 1)) {
			out = append(out, kernels.Routine{Name: name, Calls: b.counts[i].Load()})
		}
	}
	for p, name := range pathNames() {
		if name != "" && (b.threads > 1 || path(p) > pathWorker) {
			out = append(out, kernels.Routine{Name: name, Calls: b.counts[firstPath+p].Load()})
		}
	}
	return out
}

// unused lists the routines that no call runs with this number of threads: one
// adds the gradient of a norm's weight in the same pass, several apart, and what
// is large enough to be stored past the caches is shared.
func (b *Backend) unused() []string {
	if b.threads == 1 {
		return []string{"normWeight", "normGrad", "normGradAdd", "normGrad, past the caches", "normGradAdd, past the caches"}
	}
	return []string{"normGradWeight, past the caches", "normGradAddWeight, past the caches"}
}

var _ kernels.Tallier = (*Backend)(nil)
