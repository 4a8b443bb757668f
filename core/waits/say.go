package waits

import (
	"fmt"
	"slices"
	"strings"
)

// most bounds the meetings and ranks of which a message says something: more
// ranks that wait say no more.
const most = 8

// String says who did not come to what, who waits for them there, and what those
// who did not come do instead.
func (d *Deadlock) String() string {
	var out []string
	either := d.either()
	told := map[int]bool{} // what it does has been said
	said := 0
	for i, a := range d.Missed {
		if !either && !slices.ContainsFunc(a.Came, func(r int) bool { return !told[r] }) {
			continue // of nobody else
		}
		if said++; said > most {
			out = append(out, fmt.Sprintf("and %d more operations wait", len(d.Missed)-i))
			break
		}
		for _, rank := range a.Came {
			told[rank] = true
		}
		out = append(out, fmt.Sprintf("%s did not come to %s, in which %s", Ranks(a.Missing), a.Meeting, a.waiting()))
		for _, rank := range a.Missing {
			if told[rank] || either {
				continue
			}
			if told[rank] = true; len(out) < 2*most {
				out = append(out, d.instead(rank))
			}
		}
	}
	if len(d.Missed) == 0 {
		for _, r := range d.Ranks {
			if len(r.Waits) > 0 {
				out = append(out, d.instead(r.ID))
			}
		}
	}
	return strings.Join(out, "; ")
}

// waiting is "rank 1 waits" or "ranks 0, 2 wait with their queues".
func (a *Absence) waiting() string {
	does, whose := " wait", " with their queues"
	if len(a.Came) == 1 {
		does, whose = " waits", " with its queue"
	}
	if !a.Queue {
		whose = ""
	}
	return Ranks(a.Came) + does + whose
}

// instead says what a rank does.
func (d *Deadlock) instead(rank int) string {
	i := slices.IndexFunc(d.Ranks, func(r Rank) bool { return r.ID == rank })
	if i < 0 {
		return fmt.Sprintf("rank %d is unknown", rank)
	}
	r := &d.Ranks[i]
	var in, queue []string
	for _, w := range r.Waits {
		switch {
		case w.Meeting == nil:
			queue = append(queue, "for its own queue")
		default:
			s := fmt.Sprintf("in %s for %s", w.Meeting, Ranks(w.For))
			if w.Queue {
				s = "with its queue " + s
			}
			in = append(in, s)
		}
	}
	switch {
	case r.Ended:
		return fmt.Sprintf("rank %d has ended", rank)
	case len(in) > 0:
		return fmt.Sprintf("rank %d waits %s", rank, strings.Join(append(queue, in...), " and "))
	case len(queue) > 0:
		return fmt.Sprintf("rank %d waits for its own queue, which has nothing to do", rank)
	}
	return fmt.Sprintf("rank %d waits", rank)
}

// String is "all-reduce of loss (8 elements; group dp of ranks 0, 1; operation 3,
// step 0)".
func (m *Meeting) String() string {
	var parts []string
	if m.Size != "" {
		parts = append(parts, m.Size)
	}
	group := Ranks(m.Ranks)
	if m.Group != "" {
		group = fmt.Sprintf("group %s of %s", m.Group, group)
	}
	parts = append(parts, group)
	number := fmt.Sprintf("operation %d", m.Seq)
	if m.From >= 0 {
		number = fmt.Sprintf("message %d from rank %d to rank %d", m.Seq, m.From, m.To)
	}
	if m.Step >= 0 {
		number += fmt.Sprintf(", step %d", m.Step)
	} else {
		number += ", before step 0"
	}
	parts = append(parts, number)
	if m.Beside {
		parts = append(parts, "beside the computation")
	}
	return fmt.Sprintf("%s (%s)", m.Name, strings.Join(parts, "; "))
}

// Ranks is "rank 3", "ranks 1, 3" or, where there are many, "ranks 0, 1, 2, 3, 4,
// 5, 6, 7 and 24 more".
func Ranks(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	s := make([]string, 0, most)
	for i, r := range ranks {
		if i == most && len(ranks) > most+1 {
			return fmt.Sprintf("ranks %s and %d more", strings.Join(s, ", "), len(ranks)-i)
		}
		s = append(s, fmt.Sprint(r))
	}
	return "ranks " + strings.Join(s, ", ")
}
