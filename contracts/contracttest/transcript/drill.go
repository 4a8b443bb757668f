package transcript

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/cockroachdb/datadriven"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// drillSeed is the seed of the inputs of drills, which have level 0.
const drillSeed = 1

// drill begins the history of a drill that went well.
func (s *script) drill(role contract.Role, d *datadriven.TestData) (string, error) {
	world, repeats := 0, 1
	for name, at := range map[string]*int{"world": &world, "repeats": &repeats} {
		arg, ok := d.Arg(name)
		if !ok || len(arg.Vals) != 1 {
			continue
		}
		var err error
		if *at, err = strconv.Atoi(arg.Vals[0]); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if world < 1 || repeats < 1 {
		return "", fmt.Errorf("drill %s: world=%d repeats=%d: must be at least 1", role, world, repeats)
	}
	text, err := json.Marshal(map[string]any{"world": world, "algorithm": names.Tree, "seed": drillSeed, "level": 0, "repeats": repeats})
	if err != nil {
		return "", err
	}
	h := s.history(role, trace.Header{World: world, Plan: fmt.Sprintf("drill=%d", world), Model: "drill", Spec: trace.Spec{Drill: text}})
	n := 0
	for rank := range world {
		for i := range repeats {
			for _, r := range drill.Plan(world, rank, drillSeed, 0) {
				right := drill.Expect(r)
				h.Ranks[rank] = append(h.Ranks[rank], trace.Event{Kind: trace.KindDrill, Rank: rank, Step: i, Op: r.Op, Ranks: r.Group,
					Count: int64(r.Count), Digest: &right})
				n++
			}
		}
	}
	refused := 0
	if world > 1 { // one rank agrees with itself
		for _, m := range drill.Misfits(world) {
			for rank, call := range m.Calls {
				h.Ranks[rank] = append(h.Ranks[rank], trace.Event{Kind: trace.KindDrill, Rank: rank, What: "mismatch", Unit: m.Name, Op: call.Op,
					Count: int64(call.Count), Text: names.Mismatch})
				refused++
			}
		}
	}
	return fmt.Sprintf("%d operations, %d refused, ranks: %d\n", n, refused, world), nil
}
