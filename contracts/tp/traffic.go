package tp

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// pass is a unit's pass over one micro-batch.
type pass struct {
	step, micro int
	unit, what  string
}

func isBlock(unit string) bool { return strings.HasPrefix(unit, blockPrefix) }

// blockPrefix begins the unit names of blocks.
var blockPrefix = strings.TrimSuffix(model.BlockUnit(0), "0")

// sums assigns a rank's all-reduces of a group to the passes that they were part
// of: a unit's operations since its last phase belong to its next. Passes
// without operations have an entry; operations without a pass are left out.
func sums(r *evidence.Run, rank int, group names.Axis) map[pass][]trace.Event {
	out, waiting := map[pass][]trace.Event{}, map[string][]trace.Event{}
	for _, e := range r.Ranks[rank] {
		switch {
		case e.Kind == trace.KindComm && e.Group == group && e.Op == names.OpAllReduce && e.Text == "":
			waiting[e.Unit] = append(waiting[e.Unit], e)
		case e.Kind == trace.KindPhase:
			k := pass{e.Step, e.Micro, e.Unit, e.What}
			out[k] = append(out[k], waiting[e.Unit]...)
			delete(waiting, e.Unit)
		}
	}
	return out
}

// kvRanks are the world ranks that hold the same KV heads as rank, where heads
// are copied.
func kvRanks(r *evidence.Run, rank int) []int {
	n := r.Config.Plan.KVReplicas(r.Config.Model)
	first := r.At(rank).TP / n * n
	return r.Config.Plan.Dims().Group(rank, names.TP)[first : first+n]
}

func sameRanks(p *contract.Pass, e trace.Event, want []int) {
	if got := slices.Sorted(slices.Values(e.Ranks)); !slices.Equal(got, want) {
		p.At(e.Rank, e.Step).Of(e.Unit).Report(got, want, "rank %d reduced over ranks %v, not %v", e.Rank, got, want)
	}
}

// traffic is clause 7.
func traffic(p *contract.Pass) {
	r, ok := subject.Read(p)
	if !ok {
		return
	}
	for rank := range r.Header.World {
		t := newLedger(p, r, rank)
		t.judge(names.TP, r.Config.Plan.Dims().Group(rank, names.TP))
		t.judge(names.KV, kvRanks(r, rank))
	}
	for rank := range r.Header.World {
		if r.At(rank).TP == 0 {
			bytes(p, r, rank)
		}
	}
}

// microKey names a micro-batch of a rank.
type microKey struct{ step, micro int }

// tokens gives the rows of each micro-batch of a rank.
func tokens(r *evidence.Run, rank int) map[microKey]int64 {
	out := map[microKey]int64{}
	for e := range r.Events(rank, trace.KindData) {
		out[microKey{e.Step, e.Micro}] = int64(len(e.IDs) * r.Config.Model.SeqLen)
	}
	return out
}

// ledger holds one rank's all-reduces against the plan's.
type ledger struct {
	p      *contract.Pass
	r      *evidence.Run
	rank   int
	tokens map[microKey]int64
}

func newLedger(p *contract.Pass, r *evidence.Run, rank int) *ledger {
	return &ledger{p: p, r: r, rank: rank, tokens: tokens(r, rank)}
}

// recorded lists the steps in which a rank recorded any all-reduce of a group. A
// step without any lacks the evidence, one with some lacks the operation.
func recorded(r *evidence.Run, rank int, group names.Axis) map[int]bool {
	out := map[int]bool{}
	for e := range r.Events(rank, trace.KindComm) {
		if e.Group == group && e.Op == names.OpAllReduce {
			out[e.Step] = true
		}
	}
	return out
}

// due lists the elements of the all-reduces that a pass over rows tokens makes
// in a group.
func (t *ledger) due(group names.Axis, k pass, rows int64) []int64 {
	c, full := &t.r.Config, rows*int64(t.r.Config.Model.Hidden)
	if group == names.KV {
		if !isBlock(k.unit) || k.what == trace.Forward || c.Plan.KVReplicas(c.Model) == 1 {
			return nil
		}
		width := int64(max(1, c.Model.KVHeads/c.Plan.TP) * c.Model.HeadDim)
		return []int64{rows * width, rows * width}
	}
	head := model.FinalUnit
	if c.Model.Tied {
		head = model.HeadUnit
	}
	switch {
	case isBlock(k.unit):
		return []int64{full, full}
	case !vocabParallel(t.r):
		return nil
	case k.unit == model.EmbedUnit && k.what == trace.Forward, k.unit == head && k.what == trace.Backward:
		return []int64{full}
	case k.unit == head:
		return []int64{rows, rows, rows} // largest logit, target's logit, sum of exponentials
	}
	return nil
}

// passes yields the passes of the plan on a rank.
func passes(r *evidence.Run, rank int) func(func(pass) bool) {
	cfg := &r.Config
	return func(yield func(pass) bool) {
		for _, part := range cfg.Plan.Parts(cfg.Model, r.At(rank)) {
			for _, u := range model.NewLayout(cfg.Model, part).Units {
				for i := range cfg.Steps * cfg.Plan.MicroBatches {
					step, micro := i/cfg.Plan.MicroBatches, i%cfg.Plan.MicroBatches
					if !yield(pass{step, micro, u.Name, trace.Forward}) || !yield(pass{step, micro, u.Name, trace.Backward}) {
						return
					}
				}
			}
		}
	}
}

// judge compares every pass of the plan with what was recorded of a group.
func (t *ledger) judge(group names.Axis, ranks []int) {
	found, steps := sums(t.r, t.rank, group), recorded(t.r, t.rank, group)
	for k := range passes(t.r, t.rank) {
		t.p.Expect(1)
		ops, ok := found[k]
		rows, known := t.tokens[microKey{k.step, k.micro}]
		if !ok || !known {
			continue
		}
		want := t.due(group, k, rows)
		if len(want) > 0 && !steps[k.step] {
			continue
		}
		t.p.Saw(1)
		t.one(group, k, ops, want)
		for _, e := range ops {
			sameRanks(t.p, e, ranks)
		}
	}
}

func (t *ledger) one(group names.Axis, k pass, ops []trace.Event, want []int64) {
	var got []int64
	for _, e := range ops {
		got = append(got, e.Count)
	}
	if !slices.Equal(got, want) {
		t.p.At(t.rank, k.step).Of(k.unit).Report(got, want,
			"%s pass of %s, micro-batch %d: rank %d made %d all-reduces in group %s, the plan implies %d", k.what, k.unit, k.micro, t.rank, len(got), group, len(want))
	}
}

// bytes holds the bytes that a tensor-parallel group sent for its blocks in each
// micro-batch against the cost model. first is the group's lowest rank. What is
// not recorded by all its ranks is not judged.
func bytes(p *contract.Pass, r *evidence.Run, first int) {
	sent, missing, layers := map[microKey]int64{}, map[microKey]bool{}, 0
	for _, rank := range r.Config.Plan.Dims().Group(first, names.TP) {
		found, steps := sums(r, rank, names.TP), recorded(r, rank, names.TP)
		for k := range passes(r, rank) {
			if !isBlock(k.unit) {
				continue
			}
			at := microKey{k.step, k.micro}
			ops, ok := found[k]
			missing[at] = missing[at] || !ok || !steps[k.step]
			for _, e := range ops {
				sent[at] += e.Bytes
			}
		}
	}
	for _, part := range r.Config.Plan.Parts(r.Config.Model, r.At(first)) {
		layers += part.Layers.Len()
	}
	rows := tokens(r, first)
	p.Expect(r.Config.Steps * r.Config.Plan.MicroBatches)
	for _, k := range slices.SortedFunc(maps.Keys(rows), func(a, b microKey) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.micro, b.micro))
	}) {
		if !missing[k] {
			p.Saw(1)
			modelled(p, r, first, k, int(rows[k])/r.Config.Model.SeqLen, layers, sent[k])
		}
	}
}

// modelled compares the bytes of one micro-batch with the cost model.
func modelled(p *contract.Pass, r *evidence.Run, first int, k microKey, sequences, layers int, got int64) {
	m := r.Config.Model
	cost, err := shard.NewTPCost(sequences, m.SeqLen, m.Hidden, layers, r.Config.Plan.TP, 1)
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	if want := int64(cost.WireBytes()); got != want {
		p.At(first, k.step).Report(got, want,
			"the blocks' all-reduces of micro-batch %d sent %d bytes in the group of rank %d, the cost model says %d (%d all-reduces of %d bytes)", k.micro, got, first, want, cost.AllReduces(), cost.BytesPerAllReduce)
	}
}
