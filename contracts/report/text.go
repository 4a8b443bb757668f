package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/names"
)

// TextOptions change how Text writes.
type TextOptions struct {
	// Color marks verdicts by ANSI colours; for terminals only.
	Color bool
}

// Text writes r for people: the cause of a violation, where it was made, a line per
// contract, a line per clause, and under each clause what was found and how to see it
// again; doubts that are those of a clause above only refer to it. A report of
// violations that would be longer than a page has a line for each clause that is not
// held. The last line says what to do next.
func Text(w io.Writer, r *Report, o TextOptions) error {
	t := &textWriter{o: o, mark: r.Environment.mark()}
	if r.Seconds > 0 {
		t.took = brief(r.Seconds)
	}
	what := "verification"
	if r.SelfTest {
		what = "self-test"
	}
	t.linef("lockstep %s: %s", what, t.verdict(r.Verdict, 0))
	t.cause(r)
	t.linef("")
	t.environment(&r.Environment)
	t.monitored(r)
	t.contracts(r)
	t.devices(r)
	t.linef("")
	for _, x := range r.LeftOut {
		t.linef("left out: %s", x)
	}
	for _, n := range r.Notes {
		t.linef("note: %s", n)
	}
	t.totals(r)
	_, err := w.Write(t.buf.Bytes())
	return err
}

type textWriter struct {
	o          TextOptions
	mark       string // of verdicts on simulated devices; empty where none were
	buf        bytes.Buffer
	took       string // by the whole report; empty where unknown
	reproduced string // the last line that reproduces a finding
}

// linef writes one line without blanks at its end. What text among the arguments
// comes from histories is escaped.
func (t *textWriter) linef(format string, args ...any) {
	for i, a := range args {
		switch s := a.(type) {
		case painted:
			args[i] = string(s)
		case string:
			args[i] = names.Printable(s)
		}
	}
	t.buf.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

// column is the length of the longest verdict.
func (t *textWriter) column() int { return len(contract.Inconclusive.String() + t.mark) }

// verdict is the verdict's word, padded to width, coloured where asked.
func (t *textWriter) verdict(v contract.Verdict, width int) painted {
	s := fmt.Sprintf("%-*s", width, v.String()+t.mark)
	if !t.o.Color {
		return painted(s)
	}
	code := map[contract.Verdict]string{contract.Held: "32", contract.Violated: "31", contract.Inconclusive: "33"}[v]
	return painted("\x1b[" + code + "m" + s + "\x1b[0m")
}

// painted is text with the escapes of colours.
type painted string

func (t *textWriter) environment(e *Environment) {
	row := func(name, value string) {
		if value != "" {
			t.linef("  %-9s  %s", name, value)
		}
	}
	row("version", e.Build())
	row("machine", fmt.Sprintf("%s, %d cores", cmp.Or(e.CPU, "unknown processor"), e.Cores))
	row("made", t.made(e))
	row("command", e.Command)
	row("histories", e.Histories)
	if e.Backend != "" {
		row("backend", fmt.Sprintf("%s, canonical arithmetic %d", e.Backend, e.Arithmetic))
	}
	if e.Transport != "" {
		row("transport", e.Transport)
	}
	if e.Text != "" {
		row("text", fmt.Sprintf("%s, sha256 %.12s", e.Text, e.TextHash))
	}
	row("last step", e.LastStep)
	row("plans", planList(e.Plans))
	if e.Repetitions > 1 {
		row("repeated", fmt.Sprintf("%d times", e.Repetitions))
	}
}

// made says when, where, how thoroughly and in what time the report was made.
func (t *textWriter) made(e *Environment) string {
	var parts []string
	for _, p := range []struct{ what, value string }{{"", e.Date}, {"on ", e.Host}, {"in ", t.took}, {"at level ", number(e.Depth)}, {"from seed ", number(e.Seed)}} {
		if p.value != "" {
			parts = append(parts, p.what+p.value)
		}
	}
	return strings.Join(parts, " ")
}

// brief writes a time for people.
func brief(seconds float64) string {
	switch {
	case seconds < 10:
		return fmt.Sprintf("%.2f s", seconds)
	case seconds < 100:
		return fmt.Sprintf("%.1f s", seconds)
	}
	return (time.Duration(seconds) * time.Second).String()
}

// totals writes the last line: what the verdict rests on and what to do next.
func (t *textWriter) totals(r *Report) {
	clauses, of := 0, map[contract.Verdict]int{}
	for _, c := range r.Contracts {
		clauses += len(c.Clauses)
		for _, cl := range c.Clauses {
			of[cl.Verdict]++
		}
	}
	t.linef("%s: %s, %s: %d held%s, %d violated%s, %d inconclusive%s. %s", t.verdict(r.Verdict, 0),
		plural(len(r.Contracts), "contract"), plural(clauses, "clause"),
		of[contract.Held], t.mark, of[contract.Violated], t.mark, of[contract.Inconclusive], t.mark, r.next())
}

// plural is n things.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// next is the advice that fits the verdict.
func (r *Report) next() string {
	for _, c := range r.Contracts {
		if c.Verdict != r.Verdict {
			continue
		}
		switch {
		case r.SelfTest && r.Verdict == contract.Inconclusive:
			return "Next: run the mutants that were not run; until then this proves nothing."
		case r.SelfTest && r.Verdict != contract.Held:
			return "Next: a mutant was not caught, so trust no \"held\" of that clause; see the lines above."
		case r.Verdict == contract.Violated:
			return "Next: run the repeat line, and see verify --explain " + c.ID + "."
		case r.Verdict == contract.Inconclusive:
			return "Next: supply what the lines after \"why\" miss; this is not a pass."
		}
	}
	switch {
	case len(r.faulty()) > 0:
		return "Next: look at what is said of devices, at nvidia-smi -q and the kernel's log; trust nothing that they compute until then."
	case len(r.LeftOut) > 0:
		return "Next: take what is left out elsewhere, or judge it by what knows it; this is not a pass."
	case r.Verdict != contract.Held:
		return "Next: name a contract; verify --list shows them."
	case r.SelfTest:
		return "Every check has been seen to fail on a broken run."
	}
	return "Nothing to do; verify --self-test shows that these checks can fail."
}

// maxPlans is how many plans the text lists; JSON and JUnit list all.
const maxPlans = 8

// planList names the plans, or counts them where they would fill the screen.
func planList(plans []string) string {
	if len(plans) <= maxPlans {
		return strings.Join(plans, " ")
	}
	models := map[string]bool{}
	for _, p := range plans {
		model, _, _ := strings.Cut(p, ":")
		models[model] = true
	}
	sorted := slices.Sorted(maps.Keys(models))
	return fmt.Sprintf("%d of %s; --format json lists them", len(plans), strings.Join(sorted, ", "))
}
