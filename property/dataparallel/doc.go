// Package dataparallel holds the property suite of data-parallel training,
// C-DDP-001: random models, batches and plans against one worker, and the ZeRO
// stages against plain data parallelism.
package dataparallel
