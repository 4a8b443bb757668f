package kerneltest_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// conforms is all that the author of a backend has to write: in the backend's
// package it is func TestBackend(t *testing.T).
func conforms(t *testing.T) {
	kerneltest.Run(t, func(*testing.T) kernels.Backend { return ref.New[float32]() })
}

// The test of a backend has a subtest for each kernel and case.
func ExampleRun() {
	var _ func(t *testing.T) = conforms // a test that go test finds
}
