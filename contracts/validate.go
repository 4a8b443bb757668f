package contracts

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
)

// Validate checks that contracts are complete: IDs in form and unique,
// documented, every clause with a mutant, every mutant with a clause and a case
// that is evidence for it. All faults are reported together.
func Validate(cs []*suite.Suite) error {
	seen := map[string]bool{}
	var errs []error
	for _, c := range cs {
		v := &validator{c: c}
		if seen[c.ID] {
			v.fault("the ID is not unique")
		}
		seen[c.ID] = true
		v.contract()
		v.clauses()
		v.mutants(v.cases())
		errs = append(errs, v.faults...)
	}
	return errors.Join(errs...)
}

// catalogued is the form of a row of the catalogue of public bugs.
var catalogued = regexp.MustCompile(`^[BHL][0-9]{2,3}$`)

type validator struct {
	c      *suite.Suite
	faults []error
}

func (v *validator) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Errorf("contract %s: %s", v.c.ID, fmt.Sprintf(format, args...)))
}

// need reports a fault unless the field is filled.
func (v *validator) need(what, field, value string) {
	if value == "" {
		v.fault("%s: %s is missing", what, field)
	}
}

func (v *validator) contract() {
	if ok, _ := regexp.MatchString(`^C-[A-Z0-9]+-[0-9]{3}$`, v.c.ID); !ok {
		v.fault("the ID must look like C-NAME-001")
	}
	v.need("contract", "title", v.c.Title)
	v.need("contract", "statement", v.c.Statement)
	v.need("contract", "documentation", v.c.Doc)
	if len(v.c.Clauses) == 0 {
		v.fault("no clauses")
	}
}

func (v *validator) clauses() {
	for i, cl := range v.c.Clauses {
		if want := fmt.Sprintf("%s.%d", v.c.ID, i+1); cl.ID != want && !v.c.Part {
			v.fault("clause %q: the ID must be %s", cl.ID, want)
		}
		v.need(cl.ID, "sentence", cl.Says)
		v.need(cl.ID, "evidence", cl.Reads)
		switch cl.Class {
		case contract.Exact, contract.Integer:
		case contract.Bound:
			v.need(cl.ID, "derivation of the bound", cl.Derivation)
		default:
			v.fault("%s: class %q is unknown", cl.ID, cl.Class)
		}
		if cl.Check == nil {
			v.fault("%s: no check", cl.ID)
		}
		if !slices.ContainsFunc(v.c.Mutants, func(m suite.Mutant) bool { return m.Clause == cl.ID }) {
			v.fault("%s: no mutant shows that it can fail", cl.ID)
		}
	}
}

// cases checks the cases of every level and returns those of level 1, which the
// mutants are applied to, by name. Every level has the cases of the one below.
func (v *validator) cases() map[string]suite.Case {
	if v.c.Cases == nil {
		v.fault("no cases")
		return nil
	}
	var first, below map[string]suite.Case
	for level := 1; level <= maxLevel; level++ {
		byName := map[string]suite.Case{}
		for _, cs := range v.c.Cases(suite.Options{Level: level, Text: data.Default()}) {
			if _, twice := byName[cs.Name]; twice || cs.Name == "" {
				v.fault("level %d: case name %q is empty or not unique", level, cs.Name)
			}
			byName[cs.Name] = cs
			v.oneCase(cs)
		}
		for _, name := range slices.Sorted(maps.Keys(below)) {
			if _, ok := byName[name]; !ok {
				v.fault("level %d: lacks the case %q of level %d", level, name, level-1)
			}
		}
		below = byName
		if level == 1 {
			first = byName
		}
	}
	if len(first) == 0 {
		v.fault("no cases at level 1")
	}
	return first
}

func (v *validator) oneCase(cs suite.Case) {
	if _, ok := cs.Runs[contract.Test]; !ok {
		v.fault("case %q: no %s run", cs.Name, contract.Test)
	}
	for role, r := range cs.Runs {
		if r.Config == nil && r.Do == nil {
			v.fault("case %q: the %s run needs a training configuration or a function", cs.Name, role)
		}
	}
	for _, id := range cs.Clauses {
		if !v.has(id) {
			v.fault("case %q: clause %q is unknown", cs.Name, id)
		}
	}
}

// has reports whether the contract has a clause.
func (v *validator) has(id string) bool {
	return slices.ContainsFunc(v.c.Clauses, func(cl *contract.Clause) bool { return cl.ID == id })
}

func (v *validator) mutants(cases map[string]suite.Case) {
	seen := map[string]bool{}
	for _, m := range v.c.Mutants {
		if seen[m.ID] || m.ID == "" {
			v.fault("mutant %q: the ID is empty or not unique", m.ID)
		}
		seen[m.ID] = true
		v.need("mutant "+m.ID, "description", m.Says)
		if m.At.Blank() {
			v.fault("mutant %s: no place says where it must be named", m.ID)
		}
		for _, row := range m.Rows {
			if !catalogued.MatchString(row) {
				v.fault("mutant %s: row %q is none of the catalogue's", m.ID, row)
			}
		}
		if m.Break == nil {
			v.fault("mutant %s: breaks nothing", m.ID)
		}
		if !v.has(m.Clause) {
			v.fault("mutant %s: clause %q is unknown", m.ID, m.Clause)
		}
		cs, ok := cases[m.On]
		if !ok {
			v.fault("mutant %s: there is no case %q at level 1", m.ID, m.On)
		} else if !cs.Shows(m.Clause) {
			v.fault("mutant %s: case %q is no evidence for clause %s", m.ID, m.On, m.Clause)
		}
	}
}
