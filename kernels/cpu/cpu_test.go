package cpu_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
)

// open is a backend of an instruction set, or a failed test.
func open(tb testing.TB, isa string, threads int) *cpu.Backend {
	tb.Helper()
	b, err := cpu.New(cpu.Options{ISA: isa, Threads: threads})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestConformance: every instruction set of this machine, on two threads, has the
// bits of package ref in all cases. TestDrillRunsEverything has those of level 1
// on other numbers of threads, and plain Go.
func TestConformance(t *testing.T) {
	for _, isa := range cpu.ISAs() {
		if isa != cpu.Ref {
			t.Run(isa, func(t *testing.T) {
				kerneltest.Run(t, func(t *testing.T) kernels.Backend { return open(t, isa, 2) })
			})
		}
	}
}
