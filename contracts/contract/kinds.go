package contract

import (
	"fmt"
	"slices"
	"strings"
)

// maxFindings bounds the findings kept per clause; more are counted.
const maxFindings = 8

// kind is what a finding has in common with others that say the same of another
// rank, step, tensor or element: its words, without numbers. Of several devices each is
// named.
func (f *Finding) kind() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s/", f.Phase, f.Of)
	if f.Device != "" {
		fmt.Fprintf(&b, "%s/%s/", f.Host, f.Device)
	}
	number := false // whether a number has just been left out
	for _, c := range f.Message {
		switch {
		case c >= '0' && c <= '9':
			number = true
		case number && strings.ContainsRune(" .,[]", c): // a list of numbers is one
		default:
			if number {
				b.WriteByte('#')
			}
			number = false
			b.WriteRune(c)
		}
	}
	return b.String()
}

// kept is a finding with what completes it, which is done for those that are shown.
type kept struct {
	Finding
	kind     string
	complete func(*Finding)
}

// keep adds a finding to those that are kept: the first of each kind, with how many
// more there are, in the order of Compare. Of equal ones the first stays.
func keep(all []kept, x kept) []kept {
	if i := slices.IndexFunc(all, func(k kept) bool { return k.kind == x.kind }); i >= 0 {
		n, ranks := all[i].More+1+x.More, together(&all[i].Finding, &x.Finding)
		if all[i].Compare(&x.Finding) <= 0 {
			all[i].More, all[i].Ranks = n, ranks
			return all
		}
		x.More, x.Ranks = n, ranks
		all = slices.Delete(all, i, i+1)
	}
	at := len(all)
	for at > 0 && all[at-1].Compare(&x.Finding) > 0 {
		at--
	}
	all = slices.Insert(all, at, x)
	return all[:min(len(all), maxFindings)]
}

// maxRanks bounds the ranks that a finding lists.
const maxRanks = 16

// together are the ranks of two findings of a kind, ascending; nil where they are one.
func together(a, b *Finding) []int {
	out := slices.Concat(a.Ranks, b.Ranks)
	for _, f := range []*Finding{a, b} {
		if f.Rank >= 0 {
			out = append(out, f.Rank)
		}
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) < 2 {
		return nil
	}
	return out[:min(len(out), maxRanks)]
}

// Join adds findings to others, as a clause keeps them: of each kind the first, with
// how many more there are, in the order of Compare. What is in all comes first where
// neither is before the other.
func Join(all, more []Finding) []Finding {
	var list []kept
	for _, f := range slices.Concat(all, more) {
		list = keep(list, kept{Finding: f, kind: f.kind()})
	}
	var out []Finding
	for _, k := range list {
		out = append(out, k.Finding)
	}
	return out
}

// findings completes those that were kept.
func (p *Pass) findings() []Finding {
	var out []Finding
	for _, x := range p.kept {
		if x.complete != nil {
			x.complete(&x.Finding)
		}
		x.Place = p.place(x.Finding)
		out = append(out, x.Finding)
	}
	return out
}
