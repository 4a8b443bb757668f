// Package combinations holds the property suite of whole plans: data, tensor and
// pipeline parallelism with ZeRO together, checkpoints between any two of them,
// the dry run beside the run, and the table of plans with one answer.
package combinations
