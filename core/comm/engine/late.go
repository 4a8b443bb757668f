//go:build unix

package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
)

// silence is an operation in which a rank has waited for a while for others.
type silence struct {
	*standInGroup
	rank int
}

// late is of ranks whose deadline is over, as one of them says. Those that it waits for
// may themselves wait for another one, so rank 0 first asks all what they wait for.
func (h *hub) late(f protocol.Failure) {
	h.mu.Lock()
	known := h.lateness
	h.lateness = true
	h.mu.Unlock()
	if known {
		return
	}
	h.broadcast(note{Kind: noteAsk}, nil)
	time.AfterFunc(grace, func() {
		h.mu.Lock()
		blamed := blame(h.silences(), f, h.cfg.Deadline)
		h.mu.Unlock()
		h.fail(blamed)
	})
}

// silences lists what ranks wait for, as far as they have said.
func (h *hub) silences() (all []silence) {
	for r := range h.ranks {
		groups := h.groups(r)
		for i := range groups {
			if g := &groups[i]; g.Call != nil && len(g.Misses) > 0 {
				all = append(all, silence{g, r})
			}
		}
	}
	return all
}

// blame says who did not come: ranks that wait for nobody; where all wait, because what
// they sent is lost on its way, the one between which and others most is. f is how it
// reads to the rank that waited longest.
func blame(all []silence, f protocol.Failure, deadline time.Duration) protocol.Failure {
	var root *silence
	var missing []int // of what it misses, who waits for nobody
	for i := range all {
		s := &all[i]
		idle := slices.DeleteFunc(slices.Clone(s.Misses), func(r int) bool {
			return slices.ContainsFunc(all, func(o silence) bool { return o.rank == r })
		})
		if len(idle) > 0 && (root == nil || len(missing) < len(root.Misses) && len(idle) == len(s.Misses)) {
			root, missing = s, idle
		}
	}
	if root != nil {
		return protocol.Expired(root.Ranks, root.Call.Call(), missing, deadline)
	}
	first := slices.DeleteFunc(slices.Clone(all), func(s silence) bool { return s.behind(all) })
	if len(first) == 0 {
		return f
	}
	s, worst := first[0], unheard(first)
	if len(worst) > 1 {
		said := make([]string, len(worst))
		for i := range worst {
			said[i] = protocol.ListRanks(worst[i : i+1])
		}
		return protocol.Failure{Peer: -1, Err: fmt.Errorf("%w: %s do not hear each other in %s within %v",
			protocol.ErrDeadline, strings.Join(said, " and "), s.Call.Call().Describe(s.Ranks), deadline)}
	}
	return protocol.Expired(s.Ranks, s.Call.Call(), worst, deadline)
}

// unheard lists the ranks that most others do not hear, or are not heard by.
func unheard(all []silence) (worst []int) {
	pairs := map[[2]int]bool{}
	count, most := map[int]int{}, 0
	for _, s := range all {
		for _, m := range s.Misses {
			pair := [2]int{min(m, s.rank), max(m, s.rank)}
			if pairs[pair] {
				continue
			}
			pairs[pair] = true
			for _, r := range pair {
				count[r]++
				most = max(most, count[r])
			}
		}
	}
	for r, n := range count {
		if n == most {
			worst = append(worst, r)
		}
	}
	slices.Sort(worst)
	return worst
}

// behind reports whether a rank waits for one that waits in an earlier operation of the
// same group.
func (s *silence) behind(all []silence) bool {
	return slices.ContainsFunc(all, func(o silence) bool {
		return o.Group == s.Group && o.Call.Seq < s.Call.Seq && slices.Contains(s.Misses, o.rank)
	})
}
