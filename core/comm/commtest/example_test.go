package commtest_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// conforms is all that the author of a communicator has to write: in its package
// it is func TestCommunicator(t *testing.T). Sums of a tree are the canonical
// ones; other algorithms say false.
func conforms(t *testing.T) {
	host := func(int) kernels.Backend { return commtest.Memory{} }
	open := func(t testing.TB, size int) []comm.Communicator {
		ends, err := comm.NewLocal(size, host, comm.Options{Algorithm: names.Tree})
		if err != nil {
			t.Fatal(err)
		}
		return ends
	}
	commtest.Run(t, open, host, true)
}

// The test of a communicator has a subtest for each promise.
func ExampleRun() {
	var _ func(t *testing.T) = conforms // a test that go test finds
}
