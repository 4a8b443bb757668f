package drill_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/drill"
	"github.com/lockstep-ml/lockstep/kernels"
)

func host(int) kernels.Backend { return commtest.Host{} }

func open(t testing.TB, size int, algo comm.Algorithm) []comm.Communicator {
	t.Helper()
	comms, err := comm.NewLocal(size, host, comm.LocalOptions{Algorithm: algo, Deadline: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return comms
}

func TestEveryRecordOfTheTreeVerifies(t *testing.T) {
	for _, size := range []int{8} {
		n := 0
		for _, r := range drill.Run(t.Context(), open(t, size, comm.Tree), host, 7, 2) {
			n++
			if err := drill.Verify(r); err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
		}
		t.Log(size, n)
	}
}
var _ = context.Background
var _ = math.NaN
