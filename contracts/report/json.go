package report

import (
	_ "embed" // the schema
	"encoding/json"
	"io"

	"github.com/lockstep-ml/lockstep/contracts/contract"
)

//go:embed schema.json
var schema string

// JSONSchema is the JSON Schema (2020-12) of what JSON writes.
func JSONSchema() string { return schema }

// JSON writes r as one indented JSON document; lists are never null.
func JSON(w io.Writer, r *Report) error {
	out := *r
	out.Contracts = append([]Contract{}, r.Contracts...)
	for i := range out.Contracts {
		c := &out.Contracts[i]
		c.Clauses = append([]Clause{}, c.Clauses...)
		for j := range c.Clauses {
			if c.Clauses[j].Findings == nil {
				c.Clauses[j].Findings = []contract.Finding{}
			}
		}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if out.Environment.Simulated() {
		return enc.Encode(marked(&out))
	}
	return enc.Encode(&out)
}

// The forms of a report on simulated devices: whoever looks for a verdict of a real
// one must not find it.
type (
	markedReport struct {
		Schema    string `json:"schema"`
		Verdict   string `json:"verdict"`
		Simulated bool   `json:"simulated"`
		Report
		Contracts []markedContract `json:"contracts"`
	}
	markedContract struct {
		ID      string `json:"id"`
		Verdict string `json:"verdict"`
		Contract
		Clauses []markedClause `json:"clauses"`
	}
	markedClause struct {
		ID      string `json:"id"`
		Verdict string `json:"verdict"`
		Clause
	}
)

// marked is a report whose verdicts say that devices were simulated.
func marked(r *Report) *markedReport {
	out := &markedReport{Schema: r.Schema, Verdict: r.Word(r.Verdict), Simulated: true, Report: *r, Contracts: []markedContract{}}
	for _, c := range r.Contracts {
		m := markedContract{ID: c.ID, Verdict: r.Word(c.Verdict), Contract: c, Clauses: []markedClause{}}
		for _, cl := range c.Clauses {
			m.Clauses = append(m.Clauses, markedClause{ID: cl.ID, Verdict: r.Word(cl.Verdict), Clause: cl})
		}
		out.Contracts = append(out.Contracts, m)
	}
	return out
}
