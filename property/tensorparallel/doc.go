// Package tensorparallel holds the property suite of tensor parallelism,
// C-TP-001: random models, vocabularies and sizes against one worker.
package tensorparallel
