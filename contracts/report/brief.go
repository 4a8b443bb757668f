package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
)

// page is how many lines a report of violations may have that shows all there is of
// its clauses.
const page = 60

// contracts writes all contracts: in full, or, where that is longer than a page and
// something is violated, in brief.
func (t *textWriter) contracts(r *Report) {
	full := &textWriter{o: t.o, mark: t.mark}
	for i := range r.Contracts {
		full.linef("")
		full.contract(&r.Contracts[i], r.SelfTest)
	}
	if r.SelfTest || r.Verdict != contract.Violated || strings.Count(full.buf.String(), "\n") <= page {
		t.buf.Write(full.buf.Bytes())
		return
	}
	t.linef("")
	var held []string
	for i := range r.Contracts {
		c := &r.Contracts[i]
		if c.Verdict == contract.Held {
			held = append(held, c.ID)
			continue
		}
		t.linef("%s  %s  %s", t.verdict(c.Verdict, t.column()), c.ID, c.Title)
		for j := range c.Clauses {
			t.brief(&c.Clauses[j])
		}
	}
	if len(held) > 0 {
		t.linef("%s  %s", t.verdict(contract.Held, t.column()), strings.Join(held, ", "))
	}
}

// brief writes a clause that is not held in a line: its first finding, or why not.
func (t *textWriter) brief(c *Clause) {
	line := func(says string) { t.linef("  %s  %s  %s", t.verdict(c.Verdict, t.column()), c.ID, says) }
	switch {
	case c.Verdict == contract.Held:
	case c.Verdict == contract.Violated && len(c.Findings) > 0:
		f := &c.Findings[0]
		says := Place(f) + ": " + f.Message
		if v := values(f); len(v) > 0 && f.Index >= 0 {
			says += "; " + v[0]
		}
		if w := where(f); w != "" {
			says += "; on " + w
		}
		if n := c.Found - 1; n > 0 {
			says += fmt.Sprintf("; %d more", n)
		}
		line(says)
	case len(c.Doubts) > 0:
		line("why: " + c.Doubts[0])
	default:
		line("why: " + c.shortage())
	}
}

// beyond counts the findings that none of those that are shown stands for.
func (c *Clause) beyond() int {
	n := c.Found
	for _, f := range c.Findings {
		n -= 1 + f.More
	}
	return n
}

// subject says what a cause is about: run, rank with its place, tensor and element.
func subject(f *contract.Finding) string {
	var out []string
	if f.Of != "" {
		out = append(out, fmt.Sprintf("%s run", f.Of))
	}
	if f.Rank >= 0 {
		who := fmt.Sprintf("rank %d", f.Rank)
		if f.Place != "" {
			who += " (" + f.Place + ")"
		}
		out = append(out, who)
	}
	if f.Tensor != "" {
		out = append(out, element(f))
	}
	if len(out) == 0 {
		return "no one rank"
	}
	return strings.Join(out, " ")
}

// element is the tensor with the element, where that is known.
func element(f *contract.Finding) string {
	if f.Index < 0 {
		return f.Tensor
	}
	return fmt.Sprintf("%s[%d]", f.Tensor, f.Index)
}

// values are the lines that say what was found: the values, how they compare, what
// else has the one that was got.
func values(f *contract.Finding) []string {
	var out []string
	for _, v := range []struct{ name, value string }{{"got", f.Got}, {"want", f.Want}} {
		if v.value != "" {
			out = append(out, v.name+" "+v.value)
		}
	}
	if len(f.Got)+len(f.Want) <= short {
		out = []string{strings.Join(out, " ")}
	}
	if how := compared(f); how != "" && len(out) == 1 && out[0] != "" {
		out[0] += ", " + how
	} else if how != "" {
		out = append(out, how)
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// short is the length of two values that stand in one line.
const short = 64

// compared says how got compares with want.
func compared(f *contract.Finding) string {
	var out []string
	if f.Ratio != 0 {
		out = append(out, fmt.Sprintf("ratio %.6g", float64(f.Ratio)))
	}
	if f.NormRatio != 0 {
		out = append(out, fmt.Sprintf("norm ratio %.6g", float64(f.NormRatio)))
	}
	s := strings.Join(out, ", ")
	if f.Like != "" {
		if s != "" {
			s += "; "
		}
		s += f.Like
	}
	return s
}

// more says how many more findings a finding stands for, and where.
func more(f *contract.Finding) string {
	s := fmt.Sprintf("and %d more of the kind", f.More)
	if len(f.Ranks) > 0 {
		s += fmt.Sprintf(", on ranks %v", f.Ranks)
	}
	return s
}
