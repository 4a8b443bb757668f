package contracts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// sameRun reports whether breaking changed nothing in any role's history.
func sameRun(a, b *suite.Trial) bool {
	for _, role := range b.Roles() {
		if !sameHistory(a.History(role), b.History(role)) {
			return false
		}
	}
	return true
}

// sameHistory compares what two runs of one plan recorded, rank by rank. The
// events of each kind (and of each group's collectives) are in program order;
// kinds interleave freely, for reductions overlap the backward pass. Where
// buffers lie differs between any two runs and does not count.
func sameHistory(a, b *trace.History) bool {
	return a != nil && b != nil && reflect.DeepEqual(streams(a), streams(b))
}

type stream struct {
	rank  int
	kind  trace.Kind
	group names.Axis
	// beside tells the communicator that works beside the computation from the other
	// one of its group.
	beside bool
}

func streams(h *trace.History) map[stream][]string {
	out := map[stream][]string{}
	for e := range h.All {
		if e.Kind == trace.KindSpan {
			continue
		}
		k := stream{e.Rank, e.Kind, e.Group, e.Overlap}
		b, err := json.Marshal(e)
		if err != nil {
			b = fmt.Append(nil, err)
		}
		out[k] = append(out[k], string(b))
	}
	return out
}

// Difference is the first event, in the order of ranks and kinds, that two runs
// of one plan recorded differently; empty where they are the same.
func Difference(a, b *trace.History) string {
	if a == nil || b == nil {
		return "one of the runs recorded nothing"
	}
	x, y := streams(a), streams(b)
	for _, k := range slices.SortedFunc(maps.Keys(x), func(p, q stream) int {
		return cmp.Or(cmp.Compare(p.rank, q.rank), cmp.Compare(fmt.Sprint(p), fmt.Sprint(q)))
	}) {
		for i := range min(len(x[k]), len(y[k])) {
			if x[k][i] != y[k][i] {
				return fmt.Sprintf("%s became %s", x[k][i], y[k][i])
			}
		}
		if len(x[k]) != len(y[k]) {
			return fmt.Sprintf("rank %d recorded %d %s events in place of %d", k.rank, len(y[k]), k.kind, len(x[k]))
		}
	}
	if len(x) != len(y) {
		return "one of the runs recorded events of more kinds"
	}
	return ""
}

// SameResults reports whether two runs of one plan recorded the same but for the
// activations that cross between stages: those of positions without a target
// reach nothing.
func SameResults(a, b *trace.History) bool {
	if a == nil || b == nil {
		return false
	}
	x, y := streams(a), streams(b)
	messages := func(k stream, _ []string) bool { return k.kind == trace.KindMessage }
	maps.DeleteFunc(x, messages)
	maps.DeleteFunc(y, messages)
	return reflect.DeepEqual(x, y)
}
