// Package interleave runs the ranks of a process one at a time, in an order that
// a Schedule decides and nothing else does: no clock, no core of the machine.
//
// Every kernel, every operation of a communicator and every wait is a point at
// which another goroutine may go on: a rank's own, its queue's, or one that a
// fault started. Only one computes at a time, and it gives the turn to the next
// directly, so one schedule always makes the same run, to the order of its
// events. A goroutine that waits says for what: when no one can go on the run is
// stuck, and the scheduler says who waits for whom.
//
// Beside that every use of memory is watched, by happens-before and not by what
// came first in this one run: what a goroutine does comes before what another
// does only where one handed something to the other (a function submitted, or
// waited for; an operation of a communicator that both were in). Two uses of an
// element, one of which writes, of which neither comes before the other, are a
// Hazard, under every schedule and whatever the values. So is a use of memory
// that was given up and not written since, which moreover holds NaN then.
//
// Attach puts it into launch.Parts: it decorates the backends and, beneath the
// recorded one, the communicators, and takes the hooks Turns and Released.
package interleave
