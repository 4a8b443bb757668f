// Package sums holds the property suite of the canonical sums, on which
// C-DDP-001 and C-TP-001 rest: any split of a grouped sum, by groups, by ranks,
// by micro-batches or by absent workers, gives the same bits.
package sums
