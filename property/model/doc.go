// Package model holds the property suite of the decoder, C-DDP-001 and
// C-TP-001: the hand-written gradients of random models against central
// differences in float64, and tensor-parallel parts against the whole.
package model
