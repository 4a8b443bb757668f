package contracts

import (
	_ "embed" // the matrix
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/report"
)

//go:embed matrix.txt
var matrix string

// matrixHead begins the matrix.
const matrixHead = `# Fault x clause: the clauses of all contracts that each mutant violates, by
# verify --self-test on the default text. The clause with * is the one that must
# name it; with *7 it also does where the mutant begins in step 7, which is the
# run's last step or else its second; with *- there is none: the run has one step, or the
# mutant ends it before.
`

// Matrix writes which clauses see each mutant of a self-test's report: one line
// for each, sorted.
func Matrix(r *report.Report) string {
	var lines []string
	for _, c := range r.Contracts {
		for _, cl := range c.Clauses {
			for _, m := range cl.Mutants {
				line := fmt.Sprintf("%s/%s:%s", c.ID, m.ID, clauses(m.Seen, cl.ID, m.Late))
				if m.Outcome != report.Caught {
					line += fmt.Sprintf(" (%s)", m.Outcome)
				}
				lines = append(lines, line)
			}
		}
	}
	slices.Sort(lines)
	return matrixHead + strings.Join(lines, "\n") + "\n"
}

// clauses writes clauses, with the numbers of one contract's behind its ID, each
// with a blank before.
func clauses(seen []string, named string, late *int) string {
	var b strings.Builder
	last := ""
	for _, id := range seen {
		contractID, n, _ := strings.Cut(id, ".")
		if contractID == last {
			id = n
		}
		last = contractID
		b.WriteString(" " + id)
		if contractID+"."+n == named {
			b.WriteString("*")
			switch {
			case late == nil:
				b.WriteString("-")
			case *late > 0:
				fmt.Fprint(&b, *late)
			}
		}
	}
	return b.String()
}

// SeenBy is what the reviewed matrix says of a mutant: the clauses that see it;
// empty where it has no line.
func SeenBy(faultID string) string {
	for line := range strings.Lines(matrix) {
		if id, seen, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && id == faultID {
			return seen
		}
	}
	return ""
}
