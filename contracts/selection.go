package contracts

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
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

// about are the options for one contract, with the plans that it is about and takes.
// Where it is about none it gets all, and says what it lacks.
func (o *Options) about(c *suite.Suite) suite.Options {
	out := o.Options
	out.Processes = o.Agents
	if mine := o.mine(c); len(mine) > 0 {
		out.Plans = mine
		if taken := takes(c, out); len(taken) > 0 {
			out.Plans = taken
		}
	}
	return out
}

// takes lists those of the plans of options that some run of a contract's cases is
// on, but for controls.
func takes(c *suite.Suite, o suite.Options) []string {
	all := c.Cases(o)
	return slices.DeleteFunc(slices.Clone(o.Plans), func(s string) bool {
		p, err := plan.Parse(s)
		return err != nil || !slices.ContainsFunc(all, func(cs suite.Case) bool { return runsOn(cs, p) })
	})
}

func runsOn(cs suite.Case, p plan.Plan) bool {
	for role, r := range cs.Runs {
		if r.Config == nil || role == contract.Control {
			continue
		}
		asked, is := p, r.Config.Plan
		if asked.Validate(r.Config.Model, r.Config.Sequences) == nil && is.Validate(r.Config.Model, r.Config.Sequences) == nil && asked == is {
			return true
		}
	}
	return false
}

// ignored lists, as flags, what is asked for and no case of a contract depends on. A
// text is not among them: it is what training runs on, wherever something trains.
func (o *Options) ignored(c *suite.Suite) []string {
	var out []string
	for _, x := range []struct {
		option suite.Option
		asked  bool
		flag   string
	}{
		{suite.PlanOption, len(o.Plans) > 0, "plan=" + strings.Join(o.Plans, "; ")},
		{suite.ConfigOption, o.Config != "", "config=" + o.Config},
		{suite.StepsOption, o.Steps > 0, fmt.Sprintf("steps=%d", o.Steps)},
		{suite.SeedOption, o.Seed > 0, fmt.Sprintf("seed=%d", o.Seed)},
	} {
		if x.asked && slices.Contains(c.Ignores, x.option) {
			out = append(out, x.flag)
		}
	}
	return out
}

// selection is what of the options one contract does not do: all of it, where whole
// is said, or a part.
type selection struct{ whole, part string }

// selects says what a contract makes of the plans, the case and the other options
// that are asked for. What it leaves out is named, and never held.
func (o *Options) selects(c *suite.Suite) (s selection) {
	if c.OneProcess {
		switch {
		case o.Agents > 0:
			return selection{whole: fmt.Sprintf("%s: its ranks take turns in the memory of one process, and there are agents=%d", c.ID, o.Agents)}
		case o.Transport != "":
			return selection{whole: fmt.Sprintf("%s: its ranks take turns in the memory of one process, which transport=%s has not", c.ID, o.Transport)}
		}
	}
	if x := o.ignored(c); len(x) > 0 {
		return selection{whole: fmt.Sprintf("%s: has no case that depends on %s", c.ID, strings.Join(x, ", "))}
	}
	if len(o.Plans) > 0 {
		about := o.about(c)
		taken := takes(c, about)
		left := slices.DeleteFunc(slices.Clone(o.Plans), func(p string) bool { return slices.Contains(taken, p) })
		switch {
		case len(o.mine(c)) == 0:
			return selection{whole: fmt.Sprintf("%s: is not about the plans %s", c.ID, strings.Join(o.Plans, " and "))}
		case len(taken) == 0:
			return selection{whole: o.untaken(c, about.Plans)}
		case len(left) > 0:
			s.part = o.untaken(c, left)
		}
	}
	if o.Case != "" && len(o.Cases(c)) == 0 {
		s.whole = fmt.Sprintf("%s: has no case %q", c.ID, o.Case)
	}
	if why := o.unfit(c); s.whole == "" && why != "" {
		s.whole = fmt.Sprintf("%s: not judged: %s", c.ID, why)
	}
	return s
}

// concerned are the contracts that do something of what is asked for. The others are
// noted or, where contracts were asked for by name, left out: with one of these nothing
// is held. Notes also say what of it a contract does not do.
func (o *Options) concerned(cs []*suite.Suite) (out []*suite.Suite, notes, left []string) {
	for _, c := range cs {
		s := o.selects(c)
		switch {
		case s.whole == "":
			out = append(out, c)
		case o.lacking(cs):
			out, notes = append(out, c), append(notes, s.whole)
		case every(cs):
			notes = append(notes, s.whole)
		default:
			left = append(left, s.whole)
		}
		if s.part != "" {
			notes = append(notes, s.part)
		}
	}
	return out, notes, left
}

// lacking reports whether one contract is asked for by name, with plans of which it
// is about none: it is judged on these, and says what they lack.
func (o *Options) lacking(cs []*suite.Suite) bool {
	return len(cs) == 1 && len(o.Plans) > 0 && len(o.mine(cs[0])) == 0 && len(o.ignored(cs[0])) == 0
}

// checkSelection refuses options of which no contract does anything, or, where one
// is asked for by name, not all.
func (o *Options) checkSelection(cs []*suite.Suite) error {
	concerned, notes, left := o.concerned(cs)
	notes = append(left, notes...)
	if len(concerned) == 0 || len(cs) == 1 && len(notes) > 0 && !o.lacking(cs) {
		return errors.New(strings.Join(notes, "; "))
	}
	return nil
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
	s := o.line("--contract", c.ID, "--case", cs.Name)
	if len(o.Plans) > 0 && !slices.Contains(c.Ignores, suite.PlanOption) {
		s += " --plan " + quote(strings.Join(o.about(c).Plans, "; "))
	}
	if o.Config != "" && !slices.Contains(c.Ignores, suite.ConfigOption) {
		s += " --config " + quote(o.Config)
	}
	if o.Steps > 0 && !slices.Contains(c.Ignores, suite.StepsOption) {
		s += fmt.Sprintf(" --steps %d", o.Steps)
	}
	if slices.Contains(c.Ignores, suite.DataOption) {
		without := *o
		without.Text = data.Text{}
		return s + without.flags()
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
	if o.Text.Name != "" && o.Text.Name != data.Default().Name {
		s += " --data " + quote(o.Text.Name)
	}
	if o.Backend != "" {
		s += " --backend " + quote(o.Backend)
	}
	for _, f := range o.Chosen.Flags {
		s += " " + quote(f)
	}
	switch {
	case o.Agents > 0:
		s += fmt.Sprintf(" --launch procs --agents %d", o.Agents)
	case o.Transport != "":
		s += " --transport " + quote(o.Transport)
	}
	return s
}

// line is the begin of a line that runs something again.
func (o *Options) line(args ...string) string { return CommandLine("verify", args, o.Chosen.Env...) }

// CommandLine is what a person types to run a command with arguments, and with assignments
// of the environment.
func CommandLine(name string, args []string, env ...string) string {
	var s string
	for _, e := range env {
		key, value, _ := strings.Cut(e, "=")
		s += key + "=" + quote(value) + " "
	}
	s += name
	for _, a := range args {
		s += " " + quote(a)
	}
	return s
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
