// Package drill says what a drill of communicators is: every collective in a
// fixed order, and per rank a digest of each result. Plan lists the operations;
// Expect computes the digest that a right result has, from the record alone and
// by other means: integers, and a recursive tree. So the records of a run can be
// judged later, elsewhere, by Verify, without what ran them: package comm runs
// drills.
//
// Inputs are a function of (seed, world rank, index), so a result says which
// ranks' elements went where. Two kinds are used. Integer inputs add exactly in
// any order: small multiples of one power of two per index, with -0, NaN,
// infinities and subnormals planted among them. Order inputs have full mantissas
// and mixed magnitudes, so that a sum in any other order than the canonical
// tree's has other bits. Every tensor lies between guard elements, which are
// part of the digest.
package drill
