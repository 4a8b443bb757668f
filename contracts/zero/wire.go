package zero

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// moved is clause 6: bytes on the wire per step equal the stage's formula.
func moved(p *contract.Pass) {
	r, ok := read(p, contract.Test)
	if !ok {
		return
	}
	for rank := range r.Header.World {
		group := r.Config.Plan.Dims().Group(rank, "dp")
		if group[0] != rank {
			continue
		}
		want, err := traffic(r, rank)
		if err != nil {
			p.Doubt("%v", err)
			return
		}
		for step := range r.Config.Steps {
			p.Expect(1)
			sent(p, r, group, step, want)
		}
	}
}

// traffic is what a group sends in a step, by the formulas for its model parts:
// what moves gradients and weights, and the sum of the loss (once per logical
// worker of a rank in stages 2 and 3).
func traffic(r *evidence.Run, rank int) (int64, error) {
	sum := int64(0)
	for _, x := range partsOf(r, rank) {
		b, err := x.zero.WireBytes()
		if err != nil {
			return 0, err
		}
		sum += int64(b)
		if x.layout.Part.Last {
			times := 1
			if x.zero.Stage >= 2 {
				times = x.zero.Workers / x.zero.DP
			}
			sum += int64(times * 2 * 4 * (x.zero.DP - 1)) // an all-reduce of one element
		}
	}
	return sum, nil
}

// sent compares all bytes that a group sent in a step. A step that some rank
// did not finish, or left no record of, cannot be judged.
func sent(p *contract.Pass, r *evidence.Run, group []int, step int, want int64) {
	total, byOp := int64(0), map[string]int64{}
	for _, rank := range group {
		found := false
		for e := range r.Events(rank, trace.KindComm) {
			if e.Step == step && e.Group == "dp" {
				found = true
				total += e.Bytes
				byOp[e.Op] += e.Bytes
			}
		}
		if _, ended := r.Scalar(rank, step, trace.Counter); !found || !ended {
			return
		}
	}
	p.Saw(1)
	if total != want {
		p.Report(contract.Finding{Rank: group[0], Step: step, Index: -1, Got: fmt.Sprint(total), Want: fmt.Sprint(want),
			Message: fmt.Sprintf("ranks %v sent %d bytes (%s), the formula gives %d", group, total, parcels(byOp), want)})
	}
}

// parcels lists the operations that moved bytes.
func parcels(byOp map[string]int64) string {
	var out []string
	for _, op := range slices.Sorted(maps.Keys(byOp)) {
		if byOp[op] > 0 {
			out = append(out, fmt.Sprintf("%s %d", op, byOp[op]))
		}
	}
	return strings.Join(out, ", ")
}
