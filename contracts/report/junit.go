package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr,omitempty"` // in seconds
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr,omitempty"`
	Time       string          `xml:"time,attr,omitempty"`
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Host       string          `xml:"hostname,attr,omitempty"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitReason  `xml:"failure,omitempty"`
	Error   *junitReason  `xml:"error,omitempty"`
	Skipped *junitSkipped `xml:"skipped,omitempty"`
}

type junitSkipped struct {
	Message string `xml:"message,attr"`
}

type junitReason struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes r as JUnit XML: a test suite per contract, a test case per
// clause. Violated is a failure; inconclusive is an error, so that a CI that
// reads only this file does not take missing evidence for a pass.
func JUnit(w io.Writer, r *Report) error {
	out := junitSuites{Name: "lockstep" + r.Environment.mark(), Time: seconds(r.Seconds)}
	for i := range r.Contracts {
		s := suite(&r.Contracts[i], r)
		out.Tests += s.Tests
		out.Failures += s.Failures
		out.Errors += s.Errors
		out.Suites = append(out.Suites, s)
	}
	if len(r.Devices) > 0 {
		s := devices(r)
		out.Tests += s.Tests
		out.Failures += s.Failures
		out.Suites = append(out.Suites, s)
	}
	if len(r.LeftOut) > 0 {
		s := leftOut(r)
		out.Tests += s.Tests
		out.Errors += s.Errors
		out.Suites = append(out.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// leftOut is a suite of the recorded runs that nothing was made of.
func leftOut(r *Report) junitSuite {
	s := junitSuite{Name: "left out" + r.Environment.mark(), Tests: len(r.LeftOut), Errors: len(r.LeftOut), Properties: properties(&r.Environment)}
	for _, x := range r.LeftOut {
		s.Cases = append(s.Cases, junitCase{Class: s.Name, Name: x + r.Environment.mark(), Error: &junitReason{Type: r.Word(contract.Inconclusive), Message: x}})
	}
	return s
}

func suite(c *Contract, r *Report) junitSuite {
	e := &r.Environment
	s := junitSuite{Name: c.ID + e.mark(), Tests: len(c.Clauses), Time: seconds(c.Seconds), Timestamp: e.Date, Host: e.Host, Properties: properties(e)}
	if r.Cause != nil {
		s.Properties = append(s.Properties, junitProperty{"cause", r.Cause.Clause + ": " + r.Cause.headline()})
	}
	for _, w := range r.Controls {
		s.Properties = append(s.Properties, junitProperty{"control", w.says()})
	}
	for i := range c.Clauses {
		cl := &c.Clauses[i]
		jc := junitCase{Class: c.ID, Name: cl.ID + e.mark() + " " + cl.Says}
		reason := &junitReason{Type: r.Word(cl.Verdict), Message: cl.headline(), Text: cl.body()}
		switch cl.Verdict {
		case contract.Held:
		case contract.Violated:
			s.Failures++
			jc.Failure = reason
		default:
			s.Errors++
			jc.Error = reason
		}
		s.Cases = append(s.Cases, jc)
	}
	return s
}

func properties(e *Environment) []junitProperty {
	var out []junitProperty
	for _, p := range []junitProperty{
		{"version", e.Version}, {"go", e.Go}, {"platform", e.OS + "/" + e.Arch}, {"cpu", e.CPU}, {"backend", e.Backend},
		{"arithmetic", fmt.Sprint(e.Arithmetic)}, {"text_hash", e.TextHash}, {"plans", strings.Join(e.Plans, " ")},
		{"histories", e.Histories}, {"commit", e.Commit}, {"host", e.Host}, {"date", e.Date}, {"command", e.Command},
		{"level", number(e.Depth)}, {"seed", number(e.Seed)}, {"simulated", strings.Trim(e.mark(), " ()")},
	} {
		if p.Value != "" {
			out = append(out, p)
		}
	}
	return out
}

// number writes n, nothing where it is unknown.
func number[T int | uint64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// seconds writes a time as JUnit does, nothing where none was taken.
func seconds(s float64) string {
	if s == 0 {
		return ""
	}
	return strconv.FormatFloat(s, 'f', 3, 64)
}

// headline is the one line that a CI page shows.
func (c *Clause) headline() string {
	switch {
	case c.Verdict == contract.Violated && len(c.Findings) > 0:
		says := Place(&c.Findings[0]) + ": " + c.Findings[0].Message
		if w := where(&c.Findings[0]); w != "" {
			says += "; on " + w
		}
		return says
	case len(c.Doubts) > 0:
		return c.Doubts[0]
	}
	return c.shortage()
}

// body is everything under the clause's line in the text report.
func (c *Clause) body() string {
	t := &textWriter{}
	t.clause(c, map[string]string{})
	return t.buf.String()
}
