package contracts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// Cases are the cases of a contract that the options select.
func (o *Options) Cases(c *suite.Suite) []suite.Case {
	all := c.Cases(o.about(c))
	if o.Case == "" {
		return all
	}
	return slices.DeleteFunc(all, func(cs suite.Case) bool { return cs.Name != o.Case })
}

// mine lists the plans asked for that a contract is about.
func (o *Options) mine(c *suite.Suite) []string {
	var out []string
	for _, s := range o.Plans {
		if p, err := plan.Parse(s); err == nil && (c.Judges == nil || c.Judges(p)) {
			out = append(out, s)
		}
	}
	return out
}

// about are the options for one contract, with the plans that it is about. Where
// it is about none it gets all, and says what it lacks.
func (o *Options) about(c *suite.Suite) suite.Options {
	out := o.Options
	if mine := o.mine(c); len(mine) > 0 {
		out.Plans = mine
	}
	return out
}

// concerned leaves out contracts that are about none of the plans asked for, have
// no case of the name asked for, or none that fits the configuration asked for,
// unless only one contract is asked for.
func (o *Options) concerned(cs []*suite.Suite) (out []*suite.Suite, notes []string) {
	for _, c := range cs {
		switch {
		case len(cs) > 1 && len(o.Plans) > 0 && len(o.mine(c)) == 0:
			notes = append(notes, fmt.Sprintf("%s: is not about the plans %s", c.ID, strings.Join(o.Plans, " and ")))
		case len(cs) > 1 && o.Case != "" && len(o.Cases(c)) == 0:
			notes = append(notes, fmt.Sprintf("%s: has no case %q", c.ID, o.Case))
		case len(cs) > 1 && o.unfit(c) != "":
			notes = append(notes, fmt.Sprintf("%s: not judged: %s", c.ID, o.unfit(c)))
		default:
			out = append(out, c)
		}
	}
	return out, notes
}

// checkName refuses a case's name that none of the contracts knows.
func (o *Options) checkName(cs []*suite.Suite) error {
	if o.Case == "" {
		return nil
	}
	var known []string
	for _, c := range cs {
		for _, one := range c.Cases(o.about(c)) {
			if one.Name == o.Case {
				return nil
			}
			known = append(known, fmt.Sprintf("%s %q", c.ID, one.Name))
		}
	}
	return fmt.Errorf("case %q: known at level %d are %s", o.Case, o.Level, strings.Join(known, ", "))
}

// shown is the contract with the clauses that the selected case is evidence for:
// where one case is asked for, the others are not.
func (o *Options) shown(c *suite.Suite) *contract.Contract {
	if o.Case == "" {
		return c.Contract
	}
	out := *c.Contract
	out.Clauses = nil
	for _, cl := range c.Clauses {
		if slices.ContainsFunc(o.Cases(c), func(cs suite.Case) bool { return cs.Shows(cl.ID) }) {
			out.Clauses = append(out.Clauses, cl)
		}
	}
	return &out
}

// Reproduce is the command line that runs one of the contract's cases again as
// these options run it.
func (o *Options) Reproduce(c *suite.Suite, cs suite.Case) string {
	s := "verify --contract " + c.ID + " --case " + quote(cs.Name)
	if len(o.Plans) > 0 {
		s += " --plan " + quote(strings.Join(o.about(c).Plans, "; "))
	}
	if o.Config != "" {
		s += " --config " + quote(o.Config)
	}
	if o.Steps > 0 {
		s += fmt.Sprintf(" --steps %d", o.Steps)
	}
	return s + o.flags()
}

// flags are the flags of these options that belong to every kind of
// verification, those that differ from the defaults, each with a blank before.
func (o *Options) flags() string {
	var s string
	if o.Level > 1 {
		s += fmt.Sprintf(" --level %d", o.Level)
	}
	if o.Seed > 0 {
		s += fmt.Sprintf(" --seed %d", o.Seed)
	}
	return s + o.machine()
}

// machine are the flags that say what to compute with.
func (o *Options) machine() string {
	var s string
	if o.Text.Name != "" && o.Text.Name != "default" {
		s += " --data " + quote(o.Text.Name)
	}
	if o.Backend != "" {
		s += " --backend " + quote(o.Backend)
	}
	return s
}

// CommandLine is what a person types to run a command with arguments.
func CommandLine(name string, args []string) string {
	for _, a := range args {
		name += " " + quote(a)
	}
	return name
}

// quote makes one word of s for a POSIX shell.
func quote(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%"
	switch {
	case s != "" && strings.Trim(s, plain) == "":
		return s
	case strings.ContainsAny(s, "$`\"\\!\n"):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return `"` + s + `"`
}
