package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
)

func (t *textWriter) contract(c *Contract, selfTest bool) {
	took := ""
	if c.Seconds > 0 {
		took = fmt.Sprintf("  (%s)", brief(c.Seconds))
	}
	t.linef("%s  %s  %s%s", t.verdict(c.Verdict, t.column()), c.ID, c.Title, took)
	unit := "saw"
	if selfTest {
		unit = "caught"
	}
	told := map[string]string{} // doubts: the clause under which they are written
	width := 0
	for _, cl := range c.Clauses {
		width = max(width, len(cl.evidence()))
	}
	for i := range c.Clauses {
		cl := &c.Clauses[i]
		t.linef("  %s  %s  %s %-*s  %s", t.verdict(cl.Verdict, t.column()), cl.ID, unit, width, cl.evidence(), cl.Says)
		t.clause(cl, told)
	}
}

func (c *Clause) evidence() string { return fmt.Sprintf("%d/%d", c.Saw, c.Expected) }

func (t *textWriter) clause(c *Clause, told map[string]string) {
	if c.MaxRatio != 0 {
		t.linef("        largest observed / bound: %.3g", float64(c.MaxRatio))
	}
	for _, m := range c.Mutants {
		t.linef("        %-16s  %s, on %s", m.Outcome, m.ID, m.On)
		if m.Detail != "" {
			t.linef("            %s", m.Detail)
		}
	}
	if len(c.Mutants) > 0 {
		return // the findings repeat which mutants were not caught
	}
	for i := range c.Findings {
		t.finding(&c.Findings[i])
	}
	if n := c.beyond(); n > 0 {
		t.linef("        and %d more findings", n)
	}
	if c.Verdict == contract.Violated {
		return // doubts do not matter beside a violation
	}
	// What ended a run early is why of every clause that reads it: it is said once.
	first, shown, more := "", 0, 0
	for _, d := range c.Doubts {
		said := told[d]
		if said == "" {
			told[d] = c.ID
		}
		switch {
		case said == c.ID: // twice
		case said != "":
			first = cmp.Or(first, said)
		case shown == maxDoubts:
			more++
		default:
			t.linef("        why: %s", beginning(d))
			shown++
		}
	}
	if first != "" {
		t.linef("        why: as %s", first)
	}
	if more > 0 {
		t.linef("        and %d more doubts", more)
	}
	if c.Verdict == contract.Inconclusive && len(c.Doubts) == 0 {
		t.linef("        why: %s", c.shortage())
	}
}

// maxDoubts and maxDoubt bound the doubts that Text prints per clause, and the length of
// one; JSON has all.
const maxDoubts, maxDoubt = 5, 500

// beginning is that of a text that is long.
func beginning(s string) string {
	if len(s) <= maxDoubt {
		return s
	}
	return strings.ToValidUTF8(s[:maxDoubt], "") + " ..."
}

// shortage says why a clause without doubts is inconclusive.
func (c *Clause) shortage() string {
	if c.Expected <= 0 {
		return "no case was run that is evidence for it"
	}
	return fmt.Sprintf("only %d of %d pieces of evidence were seen", c.Saw, c.Expected)
}

func (t *textWriter) finding(f *contract.Finding) {
	t.linef("        %s: %s", Place(f), f.Message)
	if w := where(f); w != "" {
		t.linef("            on %s", w)
	}
	for _, line := range values(f) {
		t.linef("            %s", line)
	}
	if f.Bound != "" {
		t.linef("            bound %s", f.Bound)
	}
	if f.More > 0 {
		t.linef("            %s", more(f))
	}
	if f.Reproduce != "" && f.Reproduce != t.reproduced {
		t.linef("            reproduce: %s", f.Reproduce)
	}
	t.reproduced = f.Reproduce
}

// where is the machine and the device that a finding is about, where it has one.
func where(f *contract.Finding) string {
	switch {
	case f.Host == "":
		return f.Device
	case f.Device == "":
		return "host " + f.Host
	}
	return f.Device + " of host " + f.Host
}

// Place says where a finding was made: case, rank, step, tensor and element, as
// far as known.
func Place(f *contract.Finding) string {
	s := f.Case
	if f.Of != "" {
		s += fmt.Sprintf(", %s run", f.Of)
	}
	if f.Rank >= 0 {
		s += fmt.Sprintf(", rank %d", f.Rank)
	}
	if f.Step >= 0 {
		s += fmt.Sprintf(", step %d", f.Step)
	} else {
		s += ", before step 0"
	}
	if f.Tensor != "" {
		s += ", " + element(f)
	}
	return s
}
