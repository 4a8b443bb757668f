package comm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// roll holds what the ranks of a group called as one collective, by rank; nil
// where a rank has not come.
type roll []*header

// fitting counts the calls that fit h.
func (r roll) fitting(h *header) (n int) {
	for _, other := range r {
		if other != nil && other.fits(h) {
			n++
		}
	}
	return n
}

// missing lists the world ranks that have not come.
func (r roll) missing(ranks []int) (late []int) {
	for i, h := range r {
		if h == nil {
			late = append(late, ranks[i])
		}
	}
	return late
}

// mismatch is the failure of calls that do not fit: what every rank called.
// Where one call differs and two or more others agree, its rank is to blame.
func (r roll) mismatch(ranks []int) failure {
	peer := -1
	var said []string
	told := make([]bool, len(r))
	for i, h := range r {
		if h == nil || told[i] {
			continue
		}
		var same []int
		for j, other := range r {
			if other != nil && other.fits(h) {
				told[j] = true
				same = append(same, ranks[j])
			}
		}
		if len(same) == 1 && r.othersAgree(i) {
			peer = same[0]
		}
		said = append(said, fmt.Sprintf("%s called %s", listRanks(same), h.describe(ranks)))
	}
	return failure{peer, fmt.Errorf("%w: %s", ErrMismatch, strings.Join(said, "; "))}
}

// othersAgree reports whether all calls but that of rank odd fit, and are two or
// more.
func (r roll) othersAgree(odd int) bool {
	var first *header
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
	return others > 1 && r.fitting(first) == others
}

// split lists the new groups of a split that all ranks have called: the ranks of
// one color each, colors ascending, ordered by (key, rank). Ranks of a negative
// color are in none.
func (r roll) split() (groups [][]int) {
	order := make([]int, len(r))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r[a].color, r[b].color), cmp.Compare(r[a].key, r[b].key), cmp.Compare(a, b))
	})
	for i := 0; i < len(order); {
		color, first := r[order[i]].color, i
		for i < len(order) && r[order[i]].color == color {
			i++
		}
		if color >= 0 {
			groups = append(groups, order[first:i:i])
		}
	}
	return groups
}

// listRanks is "rank 3" or "ranks 1, 3".
func listRanks(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	s := make([]string, len(ranks))
	for i, r := range ranks {
		s[i] = fmt.Sprint(r)
	}
	return "ranks " + strings.Join(s, ", ")
}
