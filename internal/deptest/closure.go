package deptest

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// closure is a rule about what packages link: themselves, what they import, what
// that imports, and so on, in code that is not tests. Patterns are written as in
// Table.
type closure struct {
	From, Never, But []string
}

// rule makes a Rule of c.
func (c closure) rule(name, reason string) Rule {
	from, never, but := expand(c.From), expand(c.Never), expand(c.But)
	return Rule{name, reason, func(r *Rule, files []*source.File) (out []Violation) {
		imports := graph(files)
		for _, dir := range slices.Sorted(maps.Keys(imports)) {
			if !matches(dir, from) {
				continue
			}
			for _, chain := range chains(imports, dir) {
				if end := chain[len(chain)-1]; matches(end, never) && !matches(end, but) {
					out = append(out, r.at(dir, "links "+end+": "+strings.Join(chain, " -> ")))
				}
			}
		}
		return out
	}}
}

// graph has the directories that each directory's code imports.
func graph(files []*source.File) map[string][]string {
	out := map[string][]string{}
	for _, f := range files {
		if f.Test() {
			continue
		}
		out[f.Dir] = append(out[f.Dir], nil...)
		for p := range f.Imports() {
			if dir, own := ofModule(p); own && !slices.Contains(out[f.Dir], dir) {
				out[f.Dir] = append(out[f.Dir], dir)
			}
		}
	}
	for _, l := range out {
		slices.Sort(l)
	}
	return out
}

// chains gives a shortest chain of imports to everything that a directory links.
func chains(imports map[string][]string, dir string) [][]string {
	seen, out := map[string]bool{dir: true}, [][]string{{dir}}
	for i := 0; i < len(out); i++ {
		chain := out[i]
		for _, next := range imports[chain[len(chain)-1]] {
			if !seen[next] {
				seen[next] = true
				out = append(out, append(slices.Clone(chain), next))
			}
		}
	}
	return out[1:]
}

// listed makes a Rule that patterns name every package of clauses, those that
// have a suite of runs, and what these link of the contracts.
func listed(patterns []string, name, reason string) Rule {
	return Rule{name, reason, func(r *Rule, files []*source.File) (out []Violation) {
		imports, by := graph(files), map[string]string{}
		for _, suite := range slices.Sorted(maps.Keys(imports)) {
			dir := path.Dir(suite)
			if path.Base(suite) != "suite" || path.Dir(dir) != "contracts" {
				continue
			}
			by[dir] = "has a suite"
			for _, chain := range chains(imports, dir) {
				if end := chain[len(chain)-1]; source.In(end, "contracts/...") && by[end] == "" {
					by[end] = "is linked by " + dir
				}
			}
		}
		for _, dir := range slices.Sorted(maps.Keys(by)) {
			if !matches(dir, expand(patterns)) {
				out = append(out, r.at(dir, by[dir]+" and is not on the list"))
			}
		}
		return out
	}}
}
