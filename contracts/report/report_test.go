package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
)

var update = flag.Bool("update", false, "rewrite testdata")

// sample is a report with every kind of verdict, finding and doubt.
func sample() *Report {
	env := Environment{
		Version: "v0.1.0", Go: "go1.26", OS: "linux", Arch: "amd64", Level: "v1", CPU: "Example CPU", Cores: 2,
		Backend: "ref", Arithmetic: 1, Text: "default", TextHash: strings.Repeat("0123456789abcdef", 4), LastStep: "drop",
		Plans: []string{"dp=2", "dp=4,microbatches=4"},
	}
	held := Clause{ID: "C-ABC-001.1", Says: "replicas start bit-equal", Class: contract.Exact, Verdict: contract.Held, Saw: 96, Expected: 96}
	violated := Clause{ID: "C-ABC-001.2", Says: "every gradient enters one sum", Class: contract.Integer, Verdict: contract.Violated,
		Saw: 7, Expected: 8, Found: 5, Cases: []string{"nano dp=2", "odd dp=2"}, Doubts: []string{"case nano dp=2: saw 7 of 8"}, Findings: []contract.Finding{
			{Case: "nano dp=2", Rank: 1, Place: "dp 1, pp 0, tp 0", Step: 2, Phase: contract.Update, Tensor: "model.norm.weight", Index: 17,
				Got: "0x3f800001 (1.0000001)", Want: "0x3f800000 (1)", Ratio: 1.0000001192092896, NormRatio: 2, Like: "equal to what rank 1 had at the start",
				Message: "replicas differ", More: 1, Ranks: []int{1, 2}, Reproduce: "verify --contract C-ABC-001 --plan dp=2"},
			{Case: "odd dp=2", Rank: -1, Step: 2, Phase: contract.Publication, Index: -1, Message: `no reduction of "embed" <at all> & never`, Against: contract.Control},
		}}
	bound := Clause{ID: "C-ABC-001.3", Says: "gradients lie within the bound", Class: contract.Bound, Verdict: contract.Inconclusive,
		Saw: 3, Expected: 9, MaxRatio: 0.03125, Doubts: []string{"no history of the control run"}}
	same := Clause{ID: "C-ABC-001.4", Says: "so does the loss", Class: contract.Bound, Verdict: contract.Inconclusive, Doubts: bound.Doubts}
	empty := Clause{ID: "C-DEF-002.1", Says: "two runs give the same bits", Class: contract.Exact, Verdict: contract.Inconclusive}
	r := New(env, []Contract{
		{ID: "C-ABC-001", Title: "replicas stay equal", Clauses: []Clause{held, violated, bound, same}},
		{ID: "C-DEF-002", Title: "runs repeat", Clauses: []Clause{empty}},
		{ID: "C-GHI-003", Title: "all is well", Clauses: []Clause{{ID: "C-GHI-003.1", Says: "one", Class: contract.Exact,
			Verdict: contract.Held, Saw: 1, Expected: 1}}},
	})
	r.Notes = []string{"nano dp=2, test run: ended early: rank 1 lost"}
	r.Explain()
	return r
}

// selfTest is a report of mutants, one of which survived.
func selfTest() *Report {
	r := New(Environment{Version: "v0.1.0", Go: "go1.26", OS: "linux", Arch: "arm64", Cores: 8, Arithmetic: 1}, []Contract{
		{ID: "C-ABC-001", Title: "replicas stay equal", Clauses: []Clause{{
			ID: "C-ABC-001.1", Says: "replicas start bit-equal", Class: contract.Exact, Verdict: contract.Violated, Saw: 1, Expected: 2, Found: 1,
			Mutants: []Mutant{
				{ID: "other-seed", On: "nano dp=2", Says: "rank 1 has another seed", Outcome: Caught, Detail: "rank 1, model.norm.weight: differs"},
				{ID: "no-op", On: "nano dp=2", Says: "nothing", Outcome: Nothing},
			},
			Findings: []contract.Finding{{Case: "nano dp=2", Rank: -1, Step: -1, Index: -1, Message: "mutant no-op changed nothing"}},
		}}},
	})
	r.SelfTest = true
	return r
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", name, d)
	}
}

func TestWritersMatchGoldenFiles(t *testing.T) {
	write := map[string]func(*bytes.Buffer, *Report) error{
		"txt":  func(b *bytes.Buffer, r *Report) error { return Text(b, r, TextOptions{}) },
		"json": func(b *bytes.Buffer, r *Report) error { return JSON(b, r) },
		"xml":  func(b *bytes.Buffer, r *Report) error { return JUnit(b, r) },
	}
	for name, r := range map[string]*Report{"sample": sample(), "selftest": selfTest(), "empty": New(Environment{}, nil)} {
		for ext, f := range write {
			var a, b bytes.Buffer
			if err := f(&a, r); err != nil {
				t.Fatal(err)
			}
			if err := f(&b, r); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Errorf("%s.%s: two writes differ (%v)", name, ext, err)
			}
			golden(t, name+"."+ext, a.Bytes())
		}
	}
}

func TestTextIsPlainUnlessAskedOtherwise(t *testing.T) {
	var plain, colored bytes.Buffer
	if err := Text(&plain, sample(), TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Text(&colored, sample(), TextOptions{Color: true}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(plain.String(), '\x1b') {
		t.Error("plain text has an escape sequence")
	}
	s := colored.String()
	for _, code := range []string{"\x1b[31m", "\x1b[32m", "\x1b[33m"} {
		if !strings.Contains(s, code) {
			t.Errorf("coloured text lacks %q", code)
		}
		s = strings.ReplaceAll(s, code, "")
	}
	if strings.ReplaceAll(s, "\x1b[0m", "") != plain.String() {
		t.Error("colours change more than colours")
	}
	for line := range strings.Lines(plain.String()) {
		if strings.HasSuffix(line, " \n") {
			t.Errorf("blank at the end of %q", line)
		}
	}
}

func TestVerdictsAreTheWorst(t *testing.T) {
	if v := New(Environment{}, nil).Verdict; v != contract.Inconclusive {
		t.Errorf("no contracts: %s", v)
	}
	if v := New(Environment{}, []Contract{{ID: "C-A-001"}}).Verdict; v != contract.Inconclusive {
		t.Errorf("a contract without clauses: %s", v)
	}
	r := sample()
	want := []contract.Verdict{contract.Violated, contract.Inconclusive, contract.Held}
	for i, c := range r.Contracts {
		if c.Verdict != want[i] {
			t.Errorf("%s: %s, want %s", c.ID, c.Verdict, want[i])
		}
	}
	if r.Verdict != contract.Violated {
		t.Errorf("report: %s", r.Verdict)
	}
}

func TestSummaryKeepsWhatJudgeFound(t *testing.T) {
	clause := func(id string) *contract.Clause {
		return &contract.Clause{ID: id, Says: "it is so", Class: contract.Exact}
	}
	c := &contract.Contract{ID: "C-ABC-001", Title: "title"}
	got := Summary(c, []contract.Result{
		{Clause: clause("C-ABC-001.1"), Saw: 2, Expected: 2},
		{Clause: clause("C-ABC-001.2"), Saw: 1, Expected: 2, Doubts: []string{"a", "a", "b"}},
	})
	if got.Verdict != contract.Inconclusive || got.Clauses[0].Verdict != contract.Held || len(got.Clauses[1].Doubts) != 2 {
		t.Errorf("summary: %+v", got)
	}
	if v := Summary(c, nil).Verdict; v != contract.Inconclusive {
		t.Errorf("no results: %s", v)
	}
}

func TestRepetitionsAddUp(t *testing.T) {
	sum := sample()
	sum.Contracts[0].Clauses[1].Verdict, sum.Contracts[0].Clauses[1].Findings = contract.Held, nil
	sum.settle()
	sum.Add(sample())
	sum.Add(sample())
	cl := sum.Contracts[0].Clauses[1]
	if sum.Environment.Repetitions != 3 || cl.Saw != 21 || cl.Expected != 24 || cl.Found != 15 || len(cl.Findings) != 2 {
		t.Errorf("after three repetitions: %d, %+v", sum.Environment.Repetitions, cl)
	}
	if cl.Verdict != contract.Violated || sum.Verdict != contract.Violated {
		t.Errorf("a violation of one repetition is lost: %s, %s", cl.Verdict, sum.Verdict)
	}
	for range 40 {
		sum.Add(sample())
	}
	if f := sum.Contracts[0].Clauses[1].Findings; len(f) != 2 || f[0].More != 83 || f[1].More != 41 {
		t.Errorf("%+v kept, want two kinds, each with how often it was found", f)
	}
}

func TestJSONFollowsItsSchema(t *testing.T) {
	s := tracetest.Compile(t, JSONSchema())
	unbounded := sample()
	unbounded.Contracts[0].Clauses[2].MaxRatio = trace.Float(math.Inf(1))
	for name, r := range map[string]*Report{"sample": sample(), "self-test": selfTest(), "here": New(Here(), nil), "unbounded": unbounded} {
		var b bytes.Buffer
		if err := JSON(&b, r); err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSchemaRefusesOtherDocuments(t *testing.T) {
	s := tracetest.Compile(t, JSONSchema())
	var b bytes.Buffer
	if err := JSON(&b, sample()); err != nil {
		t.Fatal(err)
	}
	for old, with := range map[string]string{
		`"lockstep/report/v1"`:   `"lockstep/report/v2"`,
		`"verdict": "violated"`:  `"verdict": "fine"`,
		`"class": "bound"`:       `"class": "fuzzy"`,
		`"saw": 7`:               `"saw": -7`,
		`"id": "C-ABC-001.2"`:    `"id": "C-ABC-001"`,
		`"message": "replicas`:   `"massage": "replicas`,
		`"findings": []`:         `"findings": null`,
		`"index": 17`:            `"index": 17.5`,
		`"arithmetic": 1`:        `"arithmetics": 1`,
		`"title": "all is well"`: `"title": "all is well", "colour": "red"`,
	} {
		text := strings.Replace(b.String(), old, with, 1)
		if text == b.String() {
			t.Errorf("%s: not in the document", old)
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(doc) == nil {
			t.Errorf("the schema accepts %s", with)
		}
	}
}

func TestJSONNeverHoldsNull(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, New(Environment{}, []Contract{{ID: "C-A-001"}})); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "null") || !json.Valid(b.Bytes()) {
		t.Errorf("null or invalid: %s", b.String())
	}
}

func TestJUnitCountsAndIsWellFormed(t *testing.T) {
	var b bytes.Buffer
	if err := JUnit(&b, sample()); err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Tests != 6 || got.Failures != 1 || got.Errors != 3 || len(got.Suites) != 3 {
		t.Errorf("tests %d, failures %d, errors %d, suites %d", got.Tests, got.Failures, got.Errors, len(got.Suites))
	}
}

func TestModelNameOfProcessors(t *testing.T) {
	for text, want := range map[string]string{
		"processor\t: 0\nmodel name\t: Example 3000\n": "Example 3000",
		"processor : 0\nModel\t\t: Board 5\n":          "Board 5",
		"nothing here":                                 "",
		"":                                             "",
	} {
		if got := modelName(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// long is a report of a bug that violates many clauses in many ways.
func long() *Report {
	var all []Contract
	for i := range 12 {
		c := Contract{ID: fmt.Sprintf("C-X-%03d", i), Title: "title"}
		for j := range 6 {
			cl := Clause{ID: fmt.Sprintf("%s.%d", c.ID, j+1), Says: "it is so", Class: contract.Exact, Verdict: contract.Held, Saw: 1, Expected: 1}
			if i < 7 && j < 3 {
				cl.Verdict, cl.Found, cl.Cases = contract.Violated, 800, []string{"a", fmt.Sprint(i)}
				for k := range 8 {
					cl.Findings = append(cl.Findings, contract.Finding{Case: "a", Rank: k, Step: 10 - i, Phase: contract.Phase(10 - j), Index: -1,
						Tensor: "w", Got: strings.Repeat("0", 40), Want: strings.Repeat("1", 40), Message: fmt.Sprintf("%c is another", 'a'+k)})
				}
			}
			c.Clauses = append(c.Clauses, cl)
		}
		all = append(all, c)
	}
	r := New(selfTest().Environment, all)
	r.Explain()
	return r
}

// TestOneBugIsOnePage: a bug that violates many clauses in many ways has a page, with
// the earliest finding of all first, whatever contract found it.
func TestOneBugIsOnePage(t *testing.T) {
	r := long()
	if c := r.Cause; c == nil || c.Clause != "C-X-006.3" || c.Cases != 8 || c.Clauses != 20 || c.Finding.Rank != 0 {
		t.Errorf("cause %+v", c)
	}
	var b bytes.Buffer
	if err := Text(&b, r, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n > 55 || !strings.HasPrefix(b.String(), "lockstep verification: violated\n  cause    norm: rank 0 w\n") {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}

// TestWrongControls: what differs from a control that is wrong itself is no cause
// where there is another.
func TestWrongControls(t *testing.T) {
	differs := contract.Finding{Case: "a", Rank: 1, Index: -1, Against: contract.Control, Phase: contract.Forward, Message: "differs from the control"}
	late := contract.Finding{Case: "a", Rank: 0, Step: 5, Index: -1, Of: contract.Control, Phase: contract.Update, Message: "is not the formula's"}
	clause := func(id string, f contract.Finding) Clause {
		return Clause{ID: id, Says: "it is so", Class: contract.Exact, Verdict: contract.Violated, Found: 1, Findings: []contract.Finding{f}}
	}
	r := New(Environment{}, []Contract{{ID: "C-A-001", Title: "a", Clauses: []Clause{clause("C-A-001.1", differs), clause("C-A-001.2", late)}}})
	if r.Explain(); r.Cause.Clause != "C-A-001.2" || len(r.Controls) != 1 || r.Controls[0].Case != "a" {
		t.Errorf("cause %+v, controls %+v", r.Cause, r.Controls)
	}
	r = New(Environment{}, []Contract{{ID: "C-A-001", Title: "a", Clauses: []Clause{clause("C-A-001.1", differs)}}})
	if r.Explain(); r.Cause.Clause != "C-A-001.1" || len(r.Controls) != 0 {
		t.Errorf("cause %+v, controls %+v", r.Cause, r.Controls)
	}
	late.Case = "b"
	r.Blame(Control{Case: "a", Plan: "dp=1", Clause: "C-M-001.1", Finding: &late})
	if r.Cause.Clause != "C-M-001.1" || r.Cause.Clauses != 1 {
		t.Errorf("cause %+v", r.Cause)
	}
}
