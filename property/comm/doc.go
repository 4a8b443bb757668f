// Package comm holds the property suite of the collectives, C-COMM-001: random
// worlds, sizes, splits and sequences of operations against plain loops.
package comm
