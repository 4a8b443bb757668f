package contracts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// leftOut names the mutants that a self-test did not run because its ranks are in
// several processes, a line for each contract.
func (s *selfTest) leftOut() []string {
	var out []string
	for _, c := range s.cs {
		var ids []string
		for _, f := range s.apart {
			if f.Contract == c.ID {
				ids = append(ids, f.ID)
			}
		}
		if len(ids) > 0 {
			out = append(out, fmt.Sprintf("%s: not run, as the fault is in what ranks of one process share, and there are agents=%d: %s", c.ID, s.o.Agents, strings.Join(ids, ", ")))
		}
	}
	return out
}

// leaves reports whether mutants of a clause were left out.
func (s *selfTest) leaves(clause string) bool {
	return slices.ContainsFunc(s.apart, func(f Fault) bool { return f.Clause == clause })
}

// namesFaults reports whether faults were asked for by their IDs.
func (o *Options) namesFaults() bool {
	return slices.ContainsFunc(o.Faults, func(id string) bool { return id != FaultsDefault && id != FaultsAll })
}

// idle says of which runs agents carried no rank, as there are more agents than ranks: what
// is held there says nothing of them.
func (o *Options) idle(all []*suite.Trial) (out []string) {
	runs, first := map[int]map[*trace.History]bool{}, map[int]string{} // by number of ranks
	for _, t := range all {
		for _, role := range t.Roles() {
			h := t.History(role)
			if h == nil || h.Header.World >= o.Agents {
				continue
			}
			n := h.Header.World
			if runs[n] == nil {
				runs[n], first[n] = map[*trace.History]bool{}, fmt.Sprintf("%s, %s, %s run", t.Contract, t.Name, role)
			}
			runs[n][h] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(runs)) {
		var agents []int
		for i := n; i < o.Agents; i++ {
			agents = append(agents, i)
		}
		out = append(out, fmt.Sprintf("agents=%d: %s carried no rank of runs of %d ranks, which say nothing of them: %d, the first %s", o.Agents, trace.Spans(agents), n, len(runs[n]), first[n]))
	}
	return out
}
