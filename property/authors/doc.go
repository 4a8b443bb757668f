// Package authors tests what the authors of other trainers start from: the
// module in property/testdata/othertrainer, which uses this one from outside.
package authors
