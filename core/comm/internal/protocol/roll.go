package protocol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Roll holds what the ranks of a group called as one collective, by rank; nil
// where a rank has not come.
type Roll []*Call

// Fitting counts the calls that fit h.
func (r Roll) Fitting(h *Call) (n int) {
	for _, other := range r {
		if other != nil && other.Fits(h) {
			n++
		}
	}
	return n
}

// Missing lists the world ranks that have not come.
func (r Roll) Missing(ranks []int) (late []int) {
	for i, h := range r {
		if h == nil {
			late = append(late, ranks[i])
		}
	}
	return late
}

// Mismatch is the failure of calls that do not fit: what every rank called.
// Where one call differs and two or more others agree, its rank is to blame.
func (r Roll) Mismatch(ranks []int) Failure {
	peer := -1
	var said []string
	told := make([]bool, len(r))
	for i, h := range r {
		if h == nil || told[i] {
			continue
		}
		var same []int
		for j, other := range r {
			if other != nil && other.Fits(h) {
				told[j] = true
				same = append(same, ranks[j])
			}
		}
		if len(same) == 1 && r.OthersAgree(i) {
			peer = same[0]
		}
		said = append(said, fmt.Sprintf("%s called %s", ListRanks(same), h.Describe(ranks)))
	}
	return Failure{peer, fmt.Errorf("%w: %s", ErrMismatch, strings.Join(said, "; "))}
}

// OthersAgree reports whether all calls but that of rank odd fit, and are two or
// more.
func (r Roll) OthersAgree(odd int) bool {
	var first *Call
	others := 0
	for i, h := range r {
		if h == nil || i == odd {
			continue
		}
		if first == nil {
			first = h
		}
		others++
	}
	return others > 1 && r.Fitting(first) == others
}

// Split lists the new groups of a split that all ranks have called: the ranks of
// one color each, colors ascending, ordered by (key, rank). Ranks of a negative
// color are in none.
func (r Roll) Split() (groups [][]int) {
	order := make([]int, len(r))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r[a].Color, r[b].Color), cmp.Compare(r[a].Key, r[b].Key), cmp.Compare(a, b))
	})
	for i := 0; i < len(order); {
		color, first := r[order[i]].Color, i
		for i < len(order) && r[order[i]].Color == color {
			i++
		}
		if color >= 0 {
			groups = append(groups, order[first:i:i])
		}
	}
	return groups
}

// ListRanks is "rank 3" or "ranks 1, 3".
func ListRanks(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	s := make([]string, len(ranks))
	for i, r := range ranks {
		s[i] = fmt.Sprint(r)
	}
	return "ranks " + strings.Join(s, ", ")
}
