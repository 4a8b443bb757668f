package contracts

import (
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// claiming is the history of one step of two ranks, and of many more of which each has
// a few scalars, whose header claims ten million.
func claiming(t *testing.T, recorded int) *trace.History {
	t.Helper()
	cfg := on(t, "nano", "dp=2", false)
	cfg.Model.Layers, cfg.Model.SeqLen, cfg.Steps = 1, 2, 1
	cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true}
	out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Backend: good})
	if err != nil {
		t.Fatal(err)
	}
	h := out.History
	for rank, all := range h.Ranks {
		var few, end []trace.Event
		for i, e := range all {
			switch e.Kind {
			case trace.KindScalar, trace.KindTokens:
				few = append(few, e)
			case trace.KindEnd:
				end, all = all[i:], all[:i:i]
			}
		}
		for step := 1; step < recorded; step++ {
			for _, e := range few {
				e.Step = step
				all = append(all, e)
			}
		}
		h.Ranks[rank] = append(all, end...)
	}
	cfg.Steps = 10_000_000
	h.Header.Spec = trace.Spec{Lockstep: cfg.Spec()}
	return h
}

// TestWorkIsBoundedByWhatIsRecorded: what a history takes to be judged does not grow
// with the steps that its header claims, nor with the square of those that it recorded.
func TestWorkIsBoundedByWhatIsRecorded(t *testing.T) {
	const recorded, most = 4000, 30 * time.Second
	h := claiming(t, recorded)
	begun := time.Now()
	for _, c := range All() {
		if _, whole := kind(c); !whole {
			continue
		}
		e := contract.Evidence{Case: "claim", Histories: map[contract.Role]*trace.History{contract.Test: h, contract.Control: h, contract.Again: h}}
		results, err := judge(t.Context(), c.Contract, []contract.Evidence{e})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Verdict() == contract.Held {
				t.Errorf("%s is held by %d of ten million steps", r.Clause.ID, recorded)
			}
		}
	}
	if took := time.Since(begun); took > most {
		t.Errorf("took %s: %d steps are recorded", took, recorded)
	} else {
		t.Log(took)
	}
}
