// Package kernels defines what a compute backend is: memory, and the kernels of
// a Llama-style training step in canonical arithmetic.
//
// The doc comment of each method of Kernels is its definition, written as a
// loop. Every backend gives the bits of these loops: package kernels/ref is
// their transcription in plain Go, package kernels/kerneltest the conformance
// suite that any other backend must pass, made of the cases of kernels/drill.
//
// # Canonical arithmetic, version 2
//
// All written operations round once to float32 (nearest even, subnormals kept);
// fma rounds once; nothing else is contracted.
//
//   - chain: acc = +0, or the stored value where the kernel "continues";
//     acc = fma(a_k, b_k, acc), k ascending. The order never depends on tiling,
//     threads or instruction set, and k is never zero-padded.
//   - tree(x_0..x_{n-1}): for d = 1, 2, 4, ... < n: for i = 0, 2d, 4d, ... with
//     i+d < n: x_i = x_i + x_{i+d}. An absent leaf leaves the other operand
//     untouched; where a buffer must be sent, absent is -0 in every element.
//   - lanes(x_0..x_{n-1}): 32 accumulators at +0; lane i mod 32 takes element i,
//     ascending (fma for products, + for sums); then for d = 16, 8, 4, 2, 1:
//     l_i = l_i + l_{i+d} for i < d. All 32 lanes take part.
//   - grouped sum: the tree over groups of one chain per group.
//   - exp, log: fixed polynomials (ref.Exp32, ref.Log32); sqrt and division are
//     IEEE; max starts at -Inf and takes x when x > max.
//
// Version 2 differs from version 1 in AdamW alone: 1-beta is formed in float64
// and rounded, not formed of the rounded beta.
//
// Scalars come as float64 and are rounded once to the element type. Kernels
// panic on shapes that do not fit (a programmer's mistake, prefix "kernels: ");
// faults of a device are sticky and shown by Memory.Read or Memory.Sync.
package kernels

// Arithmetic is the version of the canonical arithmetic. It is part of every
// golden: results of different versions are never compared.
const Arithmetic = 2
