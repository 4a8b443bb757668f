//go:build unix && !linux

package procs

// Faults and soaks need Linux.
var works map[string]Work

func serveFaulty(*Seat) int { return 2 }
