package tp

import (
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// sums assigns a rank's all-reduces of a group to the passes that they were part
// of: a unit's operations since its last phase belong to its next. Passes
// without operations have an entry; operations without a pass are left out.
// told says of a step whether the rank recorded any, or all of its operations: one
// without lacks the evidence, one with them lacks the operation.
func sums(r *evidence.Run, rank int, group names.Axis) (found map[evidence.Phase][]trace.Event, told func(step int) bool) {
	steps := map[int]bool{}
	found = map[evidence.Phase][]trace.Event{}
	waiting := map[string][]trace.Event{}
	for _, e := range r.Ranks[rank] {
		switch {
		case e.Kind == trace.KindComm && e.Group == group && e.Op == names.OpAllReduce:
			steps[e.Step] = true
			if e.Text == "" {
				waiting[e.Unit] = append(waiting[e.Unit], e)
			}
		case e.Kind == trace.KindPhase:
			k := evidence.PhaseOf(e)
			found[k] = append(found[k], waiting[e.Unit]...)
			delete(waiting, e.Unit)
		}
	}
	return found, func(step int) bool {
		if _, known := steps[step]; !known {
			steps[step] = r.Told(rank, step, trace.KindComm)
		}
		return steps[step]
	}
}

// kvRanks are the world ranks that hold the same KV heads as rank, where heads
// are copied.
func kvRanks(r *evidence.Run, rank int) []int {
	n := r.Config.Plan.KVReplicas(r.Config.Model)
	first := r.At(rank).TP / n * n
	return r.Config.Plan.Dims().Group(rank, names.TP)[first : first+n]
}

// traffic is clause 7.
func traffic(p *contract.Pass, r *evidence.Run) {
	for rank := range r.Header.World {
		reduced(p, r, rank, names.TP, r.Config.Plan.Dims().Group(rank, names.TP))
		reduced(p, r, rank, names.KV, kvRanks(r, rank))
	}
	for _, group := range r.Along(names.TP) {
		bytes(p, r, group)
	}
	r.Sizes(p, names.TP)
	r.Sizes(p, names.KV)
}

// tokens gives the rows of each micro-batch of a rank.
func tokens(r *evidence.Run, rank int) map[evidence.MicroBatch]int64 {
	out := map[evidence.MicroBatch]int64{}
	for e := range r.Events(rank, trace.KindData) {
		out[evidence.MicroBatch{Step: e.Step, Micro: e.Micro}] = int64(len(e.IDs) * r.Config.Model.SeqLen)
	}
	return out
}

// due lists the elements of the all-reduces that a pass over rows tokens makes
// in a group.
func due(r *evidence.Run, group names.Axis, k evidence.Phase, rows int64) []int64 {
	c, full, head := &r.Config, rows*int64(r.Config.Model.Hidden), headUnit(r)
	switch {
	case group == names.KV && (!evidence.IsBlock(k.Unit) || k.What == trace.Forward || c.Plan.KVReplicas(c.Model) == 1):
		return nil
	case group == names.KV:
		width := int64(max(1, c.Model.KVHeads/c.Plan.TP) * c.Model.HeadDim)
		return []int64{rows * width, rows * width}
	case evidence.IsBlock(k.Unit):
		return []int64{full, full}
	case !vocabParallel(r):
		return nil
	case k.Unit == model.EmbedUnit && k.What == trace.Forward, k.Unit == head && k.What == trace.Backward:
		return []int64{full}
	case k.Unit == head:
		return []int64{rows, rows, rows} // largest logit, target's logit, sum of exponentials
	}
	return nil
}

// passes lists the passes of the plan on a rank, unit by unit.
func passes(r *evidence.Run, rank int) (out []evidence.Phase) {
	for _, l := range r.Layouts(rank) {
		for _, u := range l.Units {
			for _, b := range r.MicroBatches() {
				out = append(out, evidence.Phase{MicroBatch: b, Unit: u.Name, What: trace.Forward},
					evidence.Phase{MicroBatch: b, Unit: u.Name, What: trace.Backward})
			}
		}
	}
	return out
}

// reduced holds a rank's all-reduces of a group, which has the given ranks,
// against the plan's, pass by pass.
func reduced(p *contract.Pass, r *evidence.Run, rank int, group names.Axis, ranks []int) {
	found, told := sums(r, rank, group)
	rows := tokens(r, rank)
	for _, k := range passes(r, rank) {
		ops, ran := found[k]
		n, known := rows[k.MicroBatch]
		want := due(r, group, k, n)
		if !p.Found(ran && known && (len(want) == 0 || told(k.Step))) {
			continue
		}
		var got []int64
		for _, e := range ops {
			got = append(got, e.Count)
		}
		if !slices.Equal(got, want) {
			p.At(rank, k.Step).Of(k.Unit).In(r.Moment(trace.Event{Kind: trace.KindPhase, Step: k.Step, What: k.What, Unit: k.Unit})).Report(got, want,
				"%s pass of %s, micro-batch %d: rank %d made %d all-reduces in group %s, the plan implies %d",
				k.What, k.Unit, k.Micro, rank, len(got), group, len(want))
		}
		for _, e := range ops {
			if got := slices.Sorted(slices.Values(e.Ranks)); !slices.Equal(got, ranks) {
				p.At(rank, e.Step).Of(k.Unit).Report(got, ranks, "rank %d reduced over ranks %v, not %v", rank, got, ranks)
			}
		}
	}
}

// bytes holds the bytes that a tensor-parallel group sent for its blocks in each
// micro-batch against the cost model. What is not recorded by all its ranks is not
// judged.
func bytes(p *contract.Pass, r *evidence.Run, group []int) {
	first, layers := group[0], 0
	sent, missing := map[evidence.MicroBatch]int64{}, map[evidence.MicroBatch]bool{}
	for _, rank := range group {
		found, told := sums(r, rank, names.TP)
		for _, k := range passes(r, rank) {
			if !evidence.IsBlock(k.Unit) {
				continue
			}
			ops, ran := found[k]
			missing[k.MicroBatch] = missing[k.MicroBatch] || !ran || !told(k.Step)
			for _, e := range ops {
				sent[k.MicroBatch] += e.Bytes
			}
		}
	}
	for _, part := range r.Config.Plan.Parts(r.Config.Model, r.At(first)) {
		layers += part.Layers.Len()
	}
	rows := tokens(r, first)
	p.Expect(r.Len() * r.Config.Plan.MicroBatches)
	for _, k := range slices.SortedFunc(maps.Keys(rows), evidence.MicroBatch.Compare) {
		if !missing[k] {
			p.Saw(1)
			modelled(p, r, first, k, int(rows[k])/r.Config.Model.SeqLen, layers, sent[k])
		}
	}
}

// modelled compares the bytes of one micro-batch with the cost model.
func modelled(p *contract.Pass, r *evidence.Run, first int, k evidence.MicroBatch, sequences, layers int, got int64) {
	m := r.Config.Model
	cost, err := shard.NewTPCost(sequences, m.SeqLen, m.Hidden, layers, r.Config.Plan.TP, 1)
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	if want := int64(cost.WireBytes()); got != want {
		p.At(first, k.Step).In(contract.Backward, 1).Report(got, want, "the blocks' all-reduces of micro-batch %d sent %d bytes in the group of rank %d, "+
			"the cost model says %d (%d all-reduces of %d bytes)", k.Micro, got, first, want, cost.AllReduces(), cost.BytesPerAllReduce)
	}
}
