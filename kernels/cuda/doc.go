// Package cuda computes the canonical kernels on GPUs, with the bits of package ref.
//
// The backend has the build tag cuda. Its kernels are the .cu files, made into the PTX
// under ptx by clang (make ptx), which is what ships: the driver compiles it for the card.
//
// # How kernels keep their bits
//
// All arithmetic is written in functions that round once (gpu.h), which become .rn
// instructions that no compiler may fuse. A chain is one register of one thread, whatever
// the tile; a tree over groups is a binary counter in that thread; lanes() are the lanes
// of a warp. What is summed across blocks are integers, in any order.
//
// # Order
//
// All kernels of a backend go to one stream, and are done in the order of their calls,
// which may come from several goroutines. Matrix products that do not depend on each other
// wait for the next call of another kind, and become one launch of each kind (later.go).
// Hash, HashChanged, SumSquares, Read, ReadWide, Write, WriteWide and Sync wait for the
// device, all others do not: neither do Sums, of which one wait brings many.
package cuda
