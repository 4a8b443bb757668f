// Package drill holds the cases by which a backend is compared with package
// kernels/ref, bit for bit: for every method of kernels.Kernels inputs made from
// a seed, one call, and what the call must give. It knows nothing of package
// testing: the conformance suite of package kerneltest and the contract about
// kernels run the same cases. It knows no backend either, not even the one that
// defines the arithmetic, so that whoever only judges what a run of the cases
// recorded can list them.
//
// Shapes lie at and around the sizes of tiles, vectors and blocks, in every
// residue, and are large enough to be shared between threads and to be stored
// past the caches; values are of every magnitude, with -0, subnormals, NaN and
// infinities planted; operands are strided, unaligned, and one the other wherever
// a kernel permits it. All memory is compared (every NaN is one value, see
// kernels.Bits), so that a write outside an output, or to an input, is found as
// surely as a wrong result. What is about memory, and what can be computed from
// integers alone (digests, sums of squares), is held against its definition and
// not against ref.
//
// Cases of level 1 run every routine of the backends of this project in a second
// or two; level 2 adds products of shapes, and is for whoever changes a kernel.
package drill
