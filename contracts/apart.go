package contracts

import (
	"fmt"
	"slices"
	"strings"
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
