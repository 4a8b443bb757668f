package contracts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// What Options.Faults may hold but for IDs.
const (
	FaultsDefault = "default" // the contracts' own mutants
	FaultsAll     = "all"     // also the generated faults
)

// Fault is a mutant with its contract.
type Fault struct {
	suite.Mutant
	Contract string
}

// FaultID is the ID of a mutant among those of all contracts.
func (f *Fault) FaultID() string { return f.Contract + "/" + f.ID }

// is reports whether an ID is the fault's, with its contract or without.
func (f *Fault) is(id string) bool {
	return strings.EqualFold(id, f.ID) || strings.EqualFold(id, f.FaultID())
}

// Faults lists the mutants of contracts, in their order.
func Faults(cs []*suite.Suite) []Fault {
	var out []Fault
	for _, c := range cs {
		for _, m := range c.Mutants {
			out = append(out, Fault{m, c.ID})
		}
	}
	return out
}

// FindFaults lists the mutants that an ID names: one of them may be in several
// contracts. The error names similar ones.
func FindFaults(cs []*suite.Suite, id string) ([]Fault, error) {
	all := Faults(cs)
	found := slices.DeleteFunc(slices.Clone(all), func(f Fault) bool { return !f.is(id) })
	if len(found) > 0 {
		return found, nil
	}
	var known []string
	for _, f := range all {
		known = append(known, f.ID)
	}
	return nil, unknownFault(id, known)
}

func unknownFault(id string, known []string) error {
	return fmt.Errorf("fault %q: similar ones are %s", id, strings.Join(similar(id, known, 3), ", "))
}

// asked says which faults a self-test runs.
type asked struct {
	all, generated bool // every mutant, every generated fault
	ids            []string
}

func (a *asked) has(contractID, id string) bool {
	f := Fault{suite.Mutant{ID: id}, contractID}
	return a.all || slices.ContainsFunc(a.ids, f.is)
}

// named reports whether a generated fault was asked for by its ID.
func (a *asked) named(id string) bool { return slices.Contains(a.ids, id) }

// generates reports whether generated faults are needed at all.
func (a *asked) generates() bool { return a.generated || slices.ContainsFunc(a.ids, isGenerated) }

// faults reads Options.Faults; an ID that no mutant has is an *OptionError, those of
// generated faults are not checked here.
func (o *Options) faults(cs []*suite.Suite) (*asked, error) {
	out := &asked{all: len(o.Faults) == 0}
	for _, id := range o.Faults {
		if id == FaultsDefault || id == FaultsAll {
			out.all = true
			out.generated = out.generated || id == FaultsAll
			continue
		}
		if isGenerated(id) {
			out.ids = append(out.ids, id)
			continue
		}
		if _, err := FindFaults(cs, id); err != nil {
			return nil, &OptionError{err}
		}
		out.ids = append(out.ids, id)
	}
	return out, nil
}

// similar lists the n known words that take the fewest edits to become s.
func similar(s string, known []string, n int) []string {
	out := slices.Clone(known)
	slices.Sort(out)
	out = slices.Compact(out)
	s = strings.ToLower(s)
	slices.SortStableFunc(out, func(a, b string) int { return edits(s, a) - edits(s, b) })
	return out[:min(n, len(out))]
}

// edits is the Levenshtein distance of two words, but that a part of the other
// word is as near as a single edit.
func edits(a, b string) int {
	if a != "" && strings.Contains(b, a) {
		return 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := last
			if a[i] != b[j] {
				next = 1 + min(last, row[j], row[j+1])
			}
			last, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
