// Package kubernetes tests the manifest beside it, verify.yaml, against the types
// of Kubernetes, and runs what its pods would run. It is a module of its own, so that
// nobody else needs those types.
package kubernetes
