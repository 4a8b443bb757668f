package transcript

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// ended are the histories, with the ends that no line of the file wrote.
func (s *script) ended() map[contract.Role]*trace.History {
	out := map[contract.Role]*trace.History{}
	for role, h := range s.runs {
		out[role] = Ended(h, s.cut[role]...)
	}
	return out
}

// Ended is a history written by hand with the end of every rank that has none, but for
// the ranks whose history is to be cut off.
func Ended(h *trace.History, cut ...int) *trace.History {
	whole := *h
	whole.Ranks = maps.Clone(h.Ranks)
	end := trace.Event{Kind: trace.KindEnd}
	if cfg, err := spec.Of(h.Header.Spec); err == nil {
		end.Step = cfg.Steps - 1
	}
	for rank, events := range h.Ranks {
		written := slices.ContainsFunc(events, func(e trace.Event) bool { return e.Kind == trace.KindEnd })
		if end.Rank = rank; !written && !slices.Contains(cut, rank) {
			whole.Ranks[rank] = append(slices.Clip(events), end)
		}
	}
	return &whole
}

// judge judges the histories as they are.
func (s *script) judge(d *datadriven.TestData) (string, error) {
	var clauses []string
	if arg, ok := d.Arg("clauses"); ok {
		for _, n := range arg.Vals {
			id := s.contract.ID + "." + n
			if !slices.ContainsFunc(s.contract.Clauses, func(c *contract.Clause) bool { return c.ID == id }) {
				return "", fmt.Errorf("no clause %s", id)
			}
			clauses = append(clauses, id)
		}
	}
	var b strings.Builder
	results, err := contract.Judge(context.Background(), s.contract, []contract.Evidence{{Case: "transcript", Histories: s.ended(), Clauses: clauses}})
	if err != nil {
		return "", err
	}
	for _, r := range results {
		if clauses == nil || slices.Contains(clauses, r.Clause.ID) {
			result(&b, r)
		}
	}
	return b.String(), nil
}

// result writes what a clause came to.
func result(b *strings.Builder, r contract.Result) {
	fmt.Fprintf(b, "%s %s, saw %d of %d\n", r.Clause.ID, r.Verdict(), r.Saw, r.Expected)
	for _, x := range r.Doubts {
		fmt.Fprintf(b, "  doubt: %s\n", x)
	}
	more := r.Total
	for _, f := range r.Findings {
		fmt.Fprintf(b, "  rank %d, step %d", f.Rank, f.Step)
		for _, x := range []struct{ name, value string }{{"tensor", f.Tensor}, {"got", f.Got}, {"want", f.Want}, {"bound", f.Bound}} {
			if x.value != "" {
				fmt.Fprintf(b, ", %s %s", x.name, x.value)
			}
		}
		if f.Index >= 0 {
			fmt.Fprintf(b, ", index %d", f.Index)
		}
		fmt.Fprintf(b, ": %s\n", f.Message)
		if more -= 1 + f.More; f.More > 0 {
			fmt.Fprintf(b, "    and %d more of the kind%s\n", f.More, on(f.Ranks))
		}
	}
	if more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

// on says on which ranks findings are, where that is several.
func on(ranks []int) string {
	if len(ranks) == 0 {
		return ""
	}
	return fmt.Sprintf(", on ranks %v", ranks)
}
