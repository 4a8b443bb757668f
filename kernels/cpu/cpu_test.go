package cpu_test

import (
	"fmt"
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

// TestConformance: every instruction set of this machine, on one thread and on
// two, has the bits of package ref.
func TestConformance(t *testing.T) {
	for _, isa := range cpu.ISAs() {
		for _, threads := range []int{1, 2} {
			if isa == cpu.Ref && threads > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/threads%d", isa, threads), func(t *testing.T) {
				kerneltest.Run(t, func(t *testing.T) kernels.Backend { return open(t, isa, threads) })
			})
		}
	}
}
