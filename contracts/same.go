package contracts

import (
	"encoding/json"
	"fmt"
	"reflect"

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
