package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
)

// everything is a report in which all stands that a verdict is said of.
func everything() *Report {
	r := sample()
	r.Watch(Device{Device: "device 0 (H100, GPU-0)", Monitored: true, Findings: []string{"ecc: 1 uncorrected ECC errors"}}, Device{Device: "device 1 (H100, GPU-1)", Not: "no library"})
	r.LeaveOut("out/x: is of the contract C-NONE-001, which is none here")
	return r
}

// TestSimulatedDevicesAreMarked: in no form does a report on simulated devices have a
// verdict, whichever, or name what was judged, without the mark; those of real ones have
// none.
func TestSimulatedDevicesAreMarked(t *testing.T) {
	all := []contract.Verdict{contract.Held, contract.Violated, contract.Inconclusive}
	for _, backend := range []string{"cuda (simulated: sim:2)", "cuda-sm_80-simulated", "cpu-avx2, cuda-sm_80-simulated", "cuda-sm_80", "cpu"} {
		simulated := strings.Contains(backend, "simulated")
		for _, x := range []struct {
			name string
			r    *Report
			has  []contract.Verdict
		}{
			{"sample", sample(), all},
			{"self-test", selfTest(), all[1:2]},
			{"held", New(sample().Environment, sample().Contracts[2:]), all[:1]},
			{"inconclusive", New(sample().Environment, sample().Contracts[1:2]), all[2:]},
			{"brief", long(), all[:2]},
			{"everything", everything(), all},
		} {
			x.r.Environment.Backend = backend
			t.Run(x.name+" on "+backend, func(t *testing.T) {
				markedText(t, x.r, simulated, x.has)
				markedJSON(t, x.r, simulated, x.has)
				markedJUnit(t, x.r, simulated)
			})
		}
	}
}

// verdict is one of the text: at the begin of a line, behind what was done, or behind a
// number of clauses.
var verdict = regexp.MustCompile(`(?m)(?:^ *|: |\d )(held|violated|inconclusive)\b( \(simulated\))?`)

// markedText holds each verdict of the text, and each number of them, to the mark.
func markedText(t *testing.T, r *Report, simulated bool, has []contract.Verdict) {
	t.Helper()
	var b, coloured bytes.Buffer
	if err := errors.Join(Text(&b, r, TextOptions{}), Text(&coloured, r, TextOptions{Color: true})); err != nil {
		t.Fatal(err)
	}
	if plain := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(coloured.String(), ""); plain != b.String() {
		t.Errorf("in colour it is another text:\n%s", plain)
	}
	seen := map[string]int{}
	for _, m := range verdict.FindAllStringSubmatch(b.String(), -1) {
		seen[m[1]]++
		if (m[2] != "") != simulated {
			t.Errorf("%q, simulated %v", m[0], simulated)
		}
	}
	for _, v := range has { // in the last line all are counted
		if seen[v.String()] < 2 {
			t.Errorf("%s is there %d times:\n%s", v, seen[v.String()], b.String())
		}
	}
	if !simulated && strings.Contains(b.String(), "simulated") {
		t.Errorf("%s", b.String())
	}
}

// markedJSON holds the whole document to its schema, and each of its verdicts to the mark.
func markedJSON(t *testing.T, r *Report, simulated bool, has []contract.Verdict) {
	t.Helper()
	var b bytes.Buffer
	if err := JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := tracetest.Compile(t, JSONSchema()).Validate(doc); err != nil {
		t.Error(err)
	}
	if _, there := doc.(map[string]any)["simulated"]; there != simulated {
		t.Errorf("simulated is there: %v", there)
	}
	for _, v := range has {
		bare, marked := fmt.Sprintf(`"verdict": "%s"`, v), fmt.Sprintf(`"verdict": "%s (simulated)"`, v)
		if strings.Contains(b.String(), bare) == simulated || strings.Contains(b.String(), marked) != simulated {
			t.Errorf("%s: simulated %v\n%s", v, simulated, b.String())
		}
	}
	if !simulated && strings.Contains(b.String(), "simulated") {
		t.Errorf("%s", b.String())
	}
	// But for the mark, it is the document of a real device.
	real := *r
	real.Environment.Backend = "cuda-sm_80"
	var plain bytes.Buffer
	if err := JSON(&plain, &real); err != nil {
		t.Fatal(err)
	}
	var got, want any
	text := strings.ReplaceAll(strings.ReplaceAll(b.String(), `"backend": "`+r.Environment.Backend, `"backend": "cuda-sm_80`), " (simulated)", "")
	if err := errors.Join(json.Unmarshal([]byte(text), &got), json.Unmarshal(plain.Bytes(), &want)); err != nil {
		t.Fatal(err)
	}
	delete(got.(map[string]any), "simulated")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// markedJUnit holds the names of suites and tests, and what failures and errors are called,
// to the mark: a page of CI may show no more.
func markedJUnit(t *testing.T, r *Report, simulated bool) {
	t.Helper()
	var b bytes.Buffer
	if err := JUnit(&b, r); err != nil {
		t.Fatal(err)
	}
	var doc junitSuites
	if err := xml.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	names := []string{doc.Name}
	for _, s := range doc.Suites {
		names = append(names, s.Name)
		for _, c := range s.Cases {
			names = append(names, c.Name)
			for _, why := range []*junitReason{c.Failure, c.Error} {
				if why != nil {
					names = append(names, why.Type)
				}
			}
		}
		said := false
		for _, p := range s.Properties {
			said = said || p == junitProperty{"simulated", "simulated"}
		}
		if said != simulated {
			t.Errorf("suite %s: property simulated: %v", s.Name, said)
		}
	}
	for _, n := range names {
		if strings.Contains(n, "(simulated)") != simulated {
			t.Errorf("%q", n)
		}
	}
}
