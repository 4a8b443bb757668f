// Package shm lets ranks of one host reach each other by shared memory: goroutines of
// one process, or processes of one user. The communicator itself is package engine.
//
// A link is a segment of memory without a name in any file system, which the one that
// dials makes and hands over through a Unix socket: a ring of bytes each way, and the
// words by which both sides say how far they are. It is gone with the last process that
// has it. The socket stays: a byte in it wakes a side that waits, which is the only time
// that the system is asked for anything, and its end says that the other side is gone.
//
// Tensors in a process's arena (Memory) do not go through rings: with the segment both
// sides hand over a descriptor of theirs by which nobody can write. A line in the ring then
// says where a payload lies, the reader uses or copies it there, and the writer's operation
// lasts until it has; one that ends before says so, and what was read then is not taken.
//
// What stands in a segment is the other process's to write, at any time. Each position
// and header is copied before it is judged, and one that cannot be is an error that the
// engine adds the link to. Payloads are numbers, and may be read where they lie: in
// the segment and in an arena, of which nobody can cut off what is mapped.
//
// A segment takes memory as it is used: a link over which little goes takes a few pages,
// one over which much goes twice RingBytes. It is the system's, not counted as a rank's.
package shm
