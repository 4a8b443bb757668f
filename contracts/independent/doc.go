// Package independent computes what a training run must compute a second time:
// a Llama decoder with its loss, gradients and update, its data, its initial
// weights, its digests and its checkpoints, written from the formulas alone. It
// shares no code with what it judges: it imports nothing of this module.
//
// # Values and bounds
//
// Values are those of real arithmetic on the given float32 weights, evaluated in
// float64. Beside every value stands a bound on its distance from any float32
// evaluation of the same formulas in canonical arithmetic: a running error
// analysis (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1
// and 3.3). Each written operation adds u = 2^-24 of the magnitude at hand, a sum
// of n products gamma_n = n*u/(1-n*u) of the sum of their magnitudes, whatever
// its order; exp and log add their measured 0.87 ulp. What an operand is off by
// is passed on. So a bound is worst case, computed, and holds for every plan.
//
// # Pins
//
// Bounds of a whole program grow with its depth. A tensor that was recorded can
// be pinned (Pins): it is judged where it arises, against the evaluation so far,
// and the evaluation goes on from the recorded elements, which are exact. With
// the input and the output gradient of each block pinned, each block is judged
// from its own float32 boundary values; with the projections pinned as well, each
// step within it.
//
// Letters: n tokens, H hidden size, V vocabulary, I intermediate size, T
// sequence length, L layers. Matrices are row-major, weights [out, in].
package independent
