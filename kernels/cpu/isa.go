package cpu

// routine is a function of assembly with its number in the tally, and a second
// one, if any, for calls that store past the caches.
type routine struct {
	f                 func(*byte)
	number, streaming uint8
}

// tileTable holds the register tiles of an instruction set.
type tileTable struct {
	// rows and cols by vectors, rows, and masking of the last vector; cols
	// reads k-major A.
	rows, cols [5][9][2]routine
	// rowsMost and colsMost are the rows of the highest tile, by vectors.
	rowsMost, colsMost [5]int
	// transpose: dst[k*ldd+i] = src[i*lds+k] for i < lanes and k < n, a multiple
	// of lanes; strides in bytes.
	transpose func(dst *float32, ldd int, src *float32, lds int, n int)
	// panels, by vectors, packs k rows of np panels; dst has panel after panel,
	// ps bytes apart.
	panels [5]func(dst *float32, ps int, src *float32, lds int, k int, np int)
	// strips is panels for at most 8 floats of width bytes; it writes 32 bytes.
	strips func(dst *float32, ps int, src *float32, lds int, k int, np int, width int)
	// Numbers of the above in the tally.
	transposes, stripped uint8
	panelled             [5]uint8
}

// vectorTable holds the kernels over vectors; each takes a *vectorArgs.
type vectorTable struct {
	fill, scale, addConst, add, tree4, residual, larger,
	lanesDot, rmsNorm, normWeight, normGrad, normGradAdd, normGradWeight, normGradAddWeight,
	rope, scaleMax, rowMax, expSum, divide, divideScale, softmaxGrad,
	swiglu, swigluGrad, adamw, sgd, squares, largestBits, hash, hashChanged routine
}

// isa is an instruction set of this processor.
type isa struct {
	name  string
	lanes int // floats of a vector
	// Vectors of the tiles that the products use, for row-major and k-major A.
	rowsWide, colsWide int
	// directStride is the longest row of B, in floats, that tiles read where it
	// lies. The fewer cache lines a tile reads of a row, the less the processor
	// fetches ahead.
	directStride int
	tileTable
	vectorTable
	// routines are the names of all of these in the tally, by number.
	routines []string
	// control reads the floating-point control register.
	control func() uint32
	// tally counts; nil as a rule.
	tally *Tally
}
