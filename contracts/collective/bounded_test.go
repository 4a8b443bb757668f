package collective_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/collective"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// A drill's header that claims far more than is recorded, or has a field that none
// has, makes every clause inconclusive, at once, by name.
func TestClaimsOfDrills(t *testing.T) {
	for spec, says := range map[string]string{
		`{"world":1,"algorithm":"tree","seed":1,"level":2,"repeats":1024}`:            "0 operations are recorded, far too few for a drill of 1 ranks, level 2, 1024 times",
		`{"world":1024,"algorithm":"tree","seed":1,"level":0,"repeats":1}`:            "far too few for a drill of 1024 ranks",
		`{"world":1,"algorithm":"tree","seed":1,"level":0,"repeats":1,"repeat":2}`:    `unknown field "repeat"`,
		`{"world":1,"algorithm":"tree","seed":1,"level":0,"repeats":1000000000}`:      "must be from 1 to",
		`{"world":1,"algorithm":"tree","seed":1,"level":0,"repeats":1,"kernels":[1]}`: `unknown field "kernels"`,
	} {
		world := 1
		if strings.Contains(spec, `"world":1024`) {
			world = 1024
		}
		h := &trace.History{Header: trace.Header{Schema: trace.Schema, World: world, Spec: trace.Spec{Drill: []byte(spec)}}, Ranks: map[int][]trace.Event{}}
		for rank := range world {
			h.Ranks[rank] = []trace.Event{{Kind: trace.KindEnd, Rank: rank}}
		}
		begun := time.Now()
		results, err := contract.Judge(t.Context(), collective.Contract(), []contract.Evidence{{Histories: map[contract.Role]*trace.History{contract.Test: h}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Verdict() != contract.Inconclusive || !strings.Contains(strings.Join(r.Doubts, "\n"), says) {
				t.Errorf("%s: %s %s, %v", spec, r.Clause.ID, r.Verdict(), r.Doubts)
			}
		}
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("%s: judged in %s", spec, d)
		}
	}
}
