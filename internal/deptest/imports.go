// Package deptest enforces the architecture: which package may import which,
// and what no package may do. The rules are data with their reasons; a test of
// this package applies them to the module, and another plants a violation of
// each.
package deptest

import (
	"fmt"
	"path"
	"strings"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// Violation is a place that breaks a rule.
type Violation struct{ Rule, At, What, Reason string }

// String is the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s (rule %s: %s)", v.At, v.What, v.Rule, v.Reason)
}

// Rule is a law of the module's files.
type Rule struct {
	// Name is unique; Reason says what the rule protects.
	Name, Reason string
	check        func(*Rule, []*source.File) []Violation
}

// Check applies rules to files.
func Check(rules []Rule, files []*source.File) []Violation {
	var out []Violation
	for i := range rules {
		out = append(out, rules[i].check(&rules[i], files)...)
	}
	return out
}

// at makes a violation of r.
func (r *Rule) at(where, what string) Violation { return Violation{r.Name, where, what, r.Reason} }

// imports is a rule about import paths. Trees are patterns of source.In; those
// of To and Allow that begin with "./" lie in this module.
type imports struct {
	From, Except []string                // importing directories
	Only         func(*source.File) bool // importing files; nil is all
	To           []string                // what must not be imported
	Allow        []string                // but these may
}

// tests are the files that Table says nothing about.
func tests(f *source.File) bool { return f.Test() }

// rule makes a Rule of i.
func (i imports) rule(name, reason string) Rule {
	return Rule{name, reason, func(r *Rule, files []*source.File) (out []Violation) {
		for _, f := range files {
			if !matches(f.Dir, i.From) || matches(f.Dir, i.Except) || i.Only != nil && !i.Only(f) {
				continue
			}
			for p, spec := range f.Imports() {
				p = local(p)
				if matches(p, i.To) && !matches(p, i.Allow) {
					out = append(out, r.at(f.At(spec), "imports "+p))
				}
			}
		}
		return out
	}}
}

// local writes a path of this module as "./dir".
func local(p string) string {
	if rest, ok := strings.CutPrefix(p, source.Module); ok && (rest == "" || rest[0] == '/') {
		return "./" + path.Clean(strings.TrimPrefix(rest, "/"))
	}
	return p
}

func matches(p string, trees []string) bool {
	for _, t := range trees {
		if source.In(p, t) {
			return true
		}
	}
	return false
}
