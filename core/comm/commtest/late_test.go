package commtest_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// late runs the kernels of a rank as late as a device may: in the order of their calls,
// when something waits.
type late struct {
	commtest.Memory
	mu    sync.Mutex
	calls []func()
}

func (l *late) later(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, f)
}

func (l *late) Copy(dst, src kernels.Tensor) { l.later(func() { l.Memory.Copy(dst, src) }) }

func (l *late) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	dst, src = slices.Clone(dst), slices.Clone(src)
	l.later(func() { l.Memory.Reduce(dst, src, op) })
}

func (l *late) Write(dst kernels.Tensor, src []float32) {
	src = slices.Clone(src)
	l.later(func() { l.Memory.Write(dst, src) })
}

func (l *late) Read(dst []float32, src kernels.Tensor) error {
	if err := l.Sync(); err != nil {
		return err
	}
	return l.Memory.Read(dst, src)
}

func (l *late) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.calls {
		f()
	}
	l.calls = nil
	return nil
}

// TestLateKernels: no rank reads what another's kernels have not computed yet, nor writes
// what they have not read.
func TestLateKernels(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		t.Run(string(algo), func(t *testing.T) {
			var ranks [64]late
			of := func(rank int) kernels.Backend { return &ranks[rank] }
			open := func(t testing.TB, size int) []comm.Communicator {
				comms, err := comm.NewLocal(size, of, comm.Options{Algorithm: algo, Deadline: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				return comms
			}
			commtest.Run(t, open, of, algo == names.Tree)
		})
	}
}
