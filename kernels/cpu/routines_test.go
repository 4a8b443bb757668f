package cpu_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/drill"
)

// TestDrillRunsEverything: the cases of level 1 run every routine of every
// instruction set, and every path that its threads share, on one thread, two and
// more; and all of them give the bits of package ref.
func TestDrillRunsEverything(t *testing.T) {
	cases := drill.Cases(drill.Options{Level: 1})
	for _, isa := range cpu.ISAs() {
		for _, threads := range []int{1, 2, 5} {
			if isa == cpu.Ref && threads > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/threads%d", isa, threads), func(t *testing.T) {
				b := open(t, isa, threads)
				start, elements := time.Now(), 0
				if err := drill.Run(t.Context(), b, cases, func(r drill.Result) {
					elements += r.Elements
					if r.Difference != nil {
						t.Errorf("%s %s: %s", r.Case.Kernel, r.Case.Name, r.Difference)
					}
				}); err != nil {
					t.Fatal(err)
				}
				t.Logf("%d cases, %d elements, %v", len(cases), elements, time.Since(start))
				for _, r := range b.Tally() {
					if r.Calls == 0 {
						t.Errorf("never ran: %s", r.Name)
					}
				}
			})
		}
	}
}
