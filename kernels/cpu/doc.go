// Package cpu computes the canonical kernels at the speed of the processor: in
// AVX-512 or AVX2 assembly where there is one, chosen when a backend is opened,
// and in the plain Go of package ref elsewhere. All of them give the bits of
// package ref, for every number of threads.
//
// # How a matrix product keeps its bits
//
// A product is cut into tiles of C that fit the registers. Every element of a
// tile is one chain of fused multiply-adds in its own lane, k ascending, so
// neither the size of tiles nor their order, nor which thread has them, can
// change a sum. Long chains are cut into pieces that store their partial value
// and continue from it. Edges in M take lower tiles, edges in N masks; K is
// never padded. The tree over groups adds finished chains to the tile while it
// is in registers.
//
// A block of B of 512 by 384 elements is packed so that it stays in the second
// cache while panels of A, six or eight rows high, pass over it from the first.
// k-major A is packed too, once for all columns, so it may lie in the third.
//
// # Threads
//
// A kernel is cut into parts, and a thread takes those of its own share first, so
// that the next kernel finds in a core's caches what this one left there. Threads
// look for work for a while before they sleep: waking one takes longer than many
// kernels do.
//
// # What ran
//
// Which routines a kernel runs depends on its shapes, the instruction set and the
// number of threads. A Backend counts them (kernels.Tallier), so that whoever
// holds it against package ref can name what was never compared: each thread
// notes its own calls, and adds them up after each part.
//
// # Assembly
//
// The .s files are generated: tiles by internal/gen/tile, everything over
// vectors by internal/gen/vector, from one description for both instruction
// sets. The generator is a module of its own, so that users of this one need
// nothing but go build. Assembly cannot be preempted, so no call of it takes
// longer than some ten microseconds; between calls the Go functions around
// it are ordinary preemption points.
package cpu
