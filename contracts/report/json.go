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
	return enc.Encode(&out)
}
