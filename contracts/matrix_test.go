package contracts

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

var update = flag.Bool("update", false, "rewrite matrix.txt")

// full are options that run everything on the processor.
func full() Options {
	return Options{
		Options: suite.Options{Level: 1, Text: data.Default()},
		Parts:   launch.Parts{Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }},
		Oracle:  contracttest.Oracle(),
	}
}

// Every mutant is caught where it must be, and the clauses that see it are those
// of the reviewed matrix.
func TestMatrix(t *testing.T) {
	if race.Enabled {
		t.Skip("every mutant runs in the tests of its contract")
	}
	r, err := SelfTest(t.Context(), All(), full())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Contracts {
		for _, cl := range c.Clauses {
			for _, m := range cl.Mutants {
				if m.Outcome != report.Caught {
					t.Errorf("%s %s: %s: %s", cl.ID, m.ID, m.Outcome, m.Detail)
				}
			}
		}
	}
	if r.Verdict != contract.Held {
		t.Errorf("the self-test is %s", r.Verdict)
	}
	got := Matrix(r)
	if *update {
		if err := os.WriteFile("matrix.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(matrix, got); d != "" {
		t.Errorf("matrix.txt (-want +got; -update rewrites it, review the change):\n%s", d)
	}
}

// Every mutant has its line in the matrix, and every line its mutant.
func TestMatrixIsOfTheMutants(t *testing.T) {
	known := 0
	for _, f := range Faults(All()) {
		known++
		if SeenBy(f.FaultID()) == "" {
			t.Errorf("%s has no line in matrix.txt", f.FaultID())
		}
	}
	lines := 0
	for i := range matrix {
		if matrix[i] == '\n' {
			lines++
		}
	}
	for i := range matrixHead {
		if matrixHead[i] == '\n' {
			lines--
		}
	}
	if lines != known {
		t.Errorf("%d lines for %d mutants", lines, known)
	}
}
