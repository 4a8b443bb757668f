// Package mpi lets ranks reach each other by MPI: those of processes that mpirun has
// started. The communicator itself is package engine, so sums have the tree's bits
// whatever carries them: MPI moves bytes from one rank to another, and adds nothing.
//
// A link is a stream of bytes each way, in messages of which some are under way at a
// time. It begins as a connection over which both sides have shaken hands, and tell each
// other their process in MPI's world and a tag of their choice. The connection stays:
// MPI says nothing of a peer that is gone, and its end does. No call of MPI blocks, and
// nobody is told that a message has come, so links are polled.
//
// Messages are read from and written to memory that is not Go's and belongs to the link:
// where an operation fails in the middle of one, MPI may use that for as long as it likes.
//
// All but this file needs cgo, the headers of an MPI and the build tag mpi: make build-mpi.
package mpi
