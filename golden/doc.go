// Package golden holds recorded results that runs are compared with:
// fingerprints of canonical training and results of kernels, which are bits and the same on all
// hardware, learning rates, and reference numbers of an independent implementation, which are
// an oracle for what all plans and backends have in common.
package golden
