package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
)

// Cause is what most likely made a verification fail: of all findings the earliest, by
// step and by phase of the step, and of those that are equally early one that breaks a
// rule before one that differs from another run.
type Cause struct {
	Clause  string           `json:"clause"`
	Finding contract.Finding `json:"finding"`
	// Cases counts those in which some clause is violated, Clauses the other clauses
	// that are: later, or by the same elements.
	Cases   int `json:"cases"`
	Clauses int `json:"clauses"`
}

// Control is the control of a case that is wrong itself: what differs from it may be
// right.
type Control struct {
	Case   string `json:"case"`
	Plan   string `json:"plan,omitempty"` // of the control
	Clause string `json:"clause"`         // that says so
	// Finding is what the clause found; nil where it is among the clause's.
	Finding *contract.Finding `json:"finding,omitempty"`
}

// Explain finds the cause of a violation. Of a control that is wrong itself it is said
// so, and what differs from it is a cause only where there is no other.
func (r *Report) Explain() {
	r.Cause = nil
	if r.SelfTest || r.Verdict != contract.Violated {
		return
	}
	violated, cases := 0, map[string]bool{}
	for _, c := range r.Contracts {
		for _, cl := range c.Clauses {
			if cl.Verdict != contract.Violated {
				continue
			}
			violated++
			for _, name := range cl.Cases {
				cases[name] = true
			}
			for _, f := range cl.Findings {
				if f.Of == contract.Control {
					r.blame(Control{Case: f.Case, Clause: cl.ID})
				}
			}
		}
	}
	best := r.earliest()
	if best == nil {
		return
	}
	best.Cases, best.Clauses = len(cases), violated
	if r.violates(best.Clause) {
		best.Clauses--
	}
	r.Cause = best
}

// blame notes a control that is wrong, once for each case.
func (r *Report) blame(c Control) {
	if !slices.ContainsFunc(r.Controls, func(o Control) bool { return o.Case == c.Case }) {
		r.Controls = append(r.Controls, c)
	}
}

// Blame is the report with a control that was found to be wrong, explained again.
func (r *Report) Blame(c Control) {
	r.blame(c)
	r.Explain()
}

// violates reports whether a clause is in the report and violated.
func (r *Report) violates(clause string) bool {
	for _, c := range r.Contracts {
		for _, cl := range c.Clauses {
			if cl.ID == clause {
				return cl.Verdict == contract.Violated
			}
		}
	}
	return false
}

// wrong is what is known of the control of a case.
func (r *Report) wrong(name string) (Control, bool) {
	i := slices.IndexFunc(r.Controls, func(c Control) bool { return c.Case == name })
	if i < 0 {
		return Control{}, false
	}
	return r.Controls[i], true
}

// earliest is the first finding of all, in the order of contracts where several are.
func (r *Report) earliest() (best *Cause) {
	doubtful := func(f *contract.Finding) bool {
		_, wrong := r.wrong(f.Case)
		return wrong && f.Against == contract.Control
	}
	consider := func(clause string, f contract.Finding) {
		switch {
		case best == nil:
		case doubtful(&best.Finding) != doubtful(&f):
			if doubtful(&f) {
				return
			}
		case f.Compare(&best.Finding) >= 0:
			return
		}
		best = &Cause{Clause: clause, Finding: f}
	}
	for _, c := range r.Contracts {
		for _, cl := range c.Clauses {
			for _, f := range cl.Findings {
				consider(cl.ID, f)
			}
		}
	}
	for _, c := range r.Controls {
		if c.Finding != nil {
			consider(c.Clause, *c.Finding)
		}
	}
	return best
}

// cause writes the cause and what there is to be said of it.
func (t *textWriter) cause(r *Report) {
	c := r.Cause
	if c == nil {
		return
	}
	f := &c.Finding
	t.linef("  cause    %s: %s", phase(f), subject(f))
	t.linef("           %s", f.Message)
	for _, line := range values(f) {
		t.linef("           %s", line)
	}
	if w := where(f); w != "" {
		t.linef("  on       %s", w)
	}
	in := fmt.Sprintf("%s, %s", f.Case, when(f))
	if c.Cases > 1 {
		in += fmt.Sprintf("; first of %d cases that differ", c.Cases)
	}
	t.linef("  in       %s", in)
	seen := c.Clause
	switch {
	case c.Clauses == 1:
		seen += "; 1 more clause is violated later or by the same elements"
	case c.Clauses > 1:
		seen += fmt.Sprintf("; %d more clauses are violated later or by the same elements", c.Clauses)
	}
	t.linef("  seen by  %s", seen)
	for i, w := range r.Controls {
		if i == maxControls {
			t.linef("           and %d more controls", len(r.Controls)-i)
			break
		}
		t.linef("  control  %s", w.says())
	}
	if f.Reproduce != "" {
		t.linef("  repeat   %s", f.Reproduce)
	}
}

// maxControls bounds the wrong controls that the text lists.
const maxControls = 3

// says is what a control that is wrong means.
func (c Control) says() string {
	who := "that of " + c.Case
	if c.Plan != "" {
		who += " (" + c.Plan + ")"
	}
	return fmt.Sprintf("%s has findings against it, %s: what differs from it may be right", who, c.Clause)
}

// phase is the word for when a finding arises.
func phase(f *contract.Finding) string {
	if f.Phase == contract.Unphased {
		return "step"
	}
	return f.Phase.String()
}

// when is the step in words.
func when(f *contract.Finding) string {
	switch {
	case f.Phase == contract.Drilled:
		return "before any training"
	case f.Step < 0:
		return "before step 0"
	}
	return fmt.Sprintf("step %d", f.Step)
}

// headline is a cause in one line.
func (c *Cause) headline() string {
	f := &c.Finding
	parts := append([]string{fmt.Sprintf("%s: %s, %s: %s", phase(f), f.Case, when(f), subject(f)), f.Message}, values(f)...)
	if w := where(f); w != "" {
		parts = append(parts, "on "+w)
	}
	return strings.Join(parts, "; ")
}
