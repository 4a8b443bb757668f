package contracts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Pick gives the contracts that IDs name, letter case ignored, in the order in
// which they are named first: "all", contracts, or clauses. Of a contract of which
// only clauses are named these alone are left, with their mutants and the cases
// that are evidence for them.
func Pick(ids []string) ([]*suite.Suite, error) {
	var out []*suite.Suite
	clauses := map[string][]string{} // by contract; a contract named as a whole has none
	for _, id := range ids {
		if id == "all" {
			return All(), nil
		}
		of, number, part := strings.Cut(id, ".")
		c, err := Find(of)
		if err != nil {
			return nil, err
		}
		id = c.ID + "." + number
		if part && !slices.ContainsFunc(c.Clauses, func(cl *contract.Clause) bool { return cl.ID == id }) {
			return nil, fmt.Errorf("clause %q: %s has %s.1 to %s.%d", id, c.ID, c.ID, c.ID, len(c.Clauses))
		}
		some, known := clauses[c.ID]
		if !known {
			out = append(out, c)
		}
		switch {
		case !part:
			clauses[c.ID] = nil
		case !known || some != nil:
			clauses[c.ID] = append(some, id)
		}
	}
	for i, c := range out {
		if some := clauses[c.ID]; some != nil {
			out[i] = part(c, some)
		}
	}
	return out, nil
}

// part is a contract of which only some clauses are judged.
func part(c *suite.Suite, clauses []string) *suite.Suite {
	out, whole := *c, *c.Contract
	asked := func(id string) bool { return slices.Contains(clauses, id) }
	whole.Clauses, out.Contract, out.Part = nil, &whole, true
	for _, cl := range c.Clauses {
		if asked(cl.ID) {
			whole.Clauses = append(whole.Clauses, cl)
		}
	}
	out.Mutants = slices.DeleteFunc(slices.Clone(c.Mutants), func(m suite.Mutant) bool { return !asked(m.Clause) })
	out.Cases = func(o suite.Options) []suite.Case {
		var shown []suite.Case
		for _, cs := range c.Cases(o) {
			if !slices.ContainsFunc(clauses, cs.Shows) {
				continue
			}
			if cs.Clauses != nil {
				cs.Clauses = slices.DeleteFunc(slices.Clone(cs.Clauses), func(id string) bool { return !asked(id) })
			}
			shown = append(shown, cs)
		}
		return shown
	}
	return &out
}
