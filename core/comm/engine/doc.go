// Package engine is a communicator whose ranks reach each other by links: over TCP,
// shared memory, or whatever else carries frames. It has the tree's bits, and those of
// ring and star by name.
//
// Each rank is a node: its listeners, one connection to rank 0 for control, and one
// link per group and peer for data, made at first use, so that a group that works
// beside the computation never queues behind another one. A Way says how connections
// are made and what links they become; it is all that a transport is made of.
//
// A collective is an exchange: each rank has, for every peer, a list of pieces to send
// and a list of pieces to expect, in one order that both know. Every pair exchanges at
// least one piece, so nobody returns before all have called, and a peer that called
// something else is noticed by the digest in the first frame. Rank 0 is then told; it
// asks all ranks of the group what they called, and blames as the in-process
// communicator does. The first failure that reaches rank 0 is every rank's.
package engine
