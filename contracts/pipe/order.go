package pipe

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// actions reads back what a stage did in each step: passes from phases, in which
// consecutive units of one pass are one action, and transfers from messages.
func actions(r *evidence.Run, rank int) [][]schedule.Action {
	stage, plan := r.At(rank).PP, r.Config.Plan
	units := chunks(r, stage)
	out := make([][]schedule.Action, r.Config.Steps)
	for _, e := range r.Ranks[rank] {
		if e.Step < 0 || e.Step >= len(out) {
			continue
		}
		list := &out[e.Step]
		switch e.Kind {
		case trace.KindPhase:
			a := schedule.Action{Kind: schedule.Forward, Micro: e.Micro, Chunk: units[e.Unit], Peer: -1}
			if e.What == trace.Backward {
				a.Kind = schedule.Backward
			}
			if n := len(*list); n == 0 || (*list)[n-1] != a {
				*list = append(*list, a)
			}
		case trace.KindMessage:
			*list = append(*list, transfer(e, plan.PP))
		}
	}
	return out
}

// transfer is the action behind a message of a stage among p. The message names
// its boundary by the virtual stage before it.
func transfer(e trace.Event, p int) schedule.Action {
	near, far := int(e.Seq)/p, int(e.Seq+1)/p // chunks on the two sides
	a := schedule.Action{Micro: e.Micro, Peer: e.Peer}
	switch {
	case e.Op == names.OpSend && e.What == trace.Forward:
		a.Kind, a.Chunk = schedule.SendForward, near
	case e.Op == names.OpSend:
		a.Kind, a.Chunk = schedule.SendBackward, far
	case e.What == trace.Forward:
		a.Kind, a.Chunk = schedule.RecvForward, far
	default:
		a.Kind, a.Chunk = schedule.RecvBackward, near
	}
	return a
}

// planned is the plan's schedule.
func planned(p *contract.Pass, r *evidence.Run) (s schedule.Schedule, ok bool) {
	s, err := schedule.Named(r.Config.Plan.Schedule, r.Config.Plan.PP, r.Config.Plan.Virtual, r.Config.Plan.MicroBatches)
	if err != nil {
		p.Doubt("%v", err)
	}
	return s, err == nil
}

// asRun is a pipeline's schedule as it was run in one step; ok is false where a
// stage recorded fewer actions than the plan has.
func asRun(lists [][][]schedule.Action, plan schedule.Schedule, step int) (s schedule.Schedule, ok bool) {
	s = schedule.Schedule{Name: plan.Name, Chunks: plan.Chunks, Micros: plan.Micros}
	for stage := range lists {
		s.Stages = append(s.Stages, lists[stage][step])
		if len(lists[stage][step]) < len(plan.Stages[stage]) {
			return s, false
		}
	}
	return s, true
}

// lists reads the actions of a pipeline's stages.
func lists(r *evidence.Run, ranks []int) (out [][][]schedule.Action) {
	for _, rank := range ranks {
		out = append(out, actions(r, rank))
	}
	return out
}

// scheduled is clause 5.
func scheduled(p *contract.Pass) {
	r, ok := subject.Read(p)
	if !ok {
		return
	}
	plan, ok := planned(p, r)
	if !ok {
		return
	}
	bound, ok := liveBound(p, plan)
	if !ok {
		return
	}
	for _, ranks := range pipelines(r) {
		ran := lists(r, ranks)
		for step := range r.Config.Steps {
			for stage, rank := range ranks {
				follows(p, rank, step, ran[stage][step], plan.Stages[stage])
			}
			sound(p, ranks[0], step, ran, plan)
		}
		for stage, rank := range ranks {
			live(p, r, rank, bound[stage], plan)
			activations(p, r, rank, bound[stage], plan)
		}
	}
}

// follows checks that a stage's actions are the plan's, in its order. What the
// record lacks is missing evidence; what it has beside or before the plan's is
// not.
func follows(p *contract.Pass, rank, step int, got, want []schedule.Action) {
	p.Expect(len(want))
	next := 0
	for i, a := range got {
		at := next
		for at < len(want) && want[at] != a {
			at++
		}
		if at == len(want) {
			should := "nothing more"
			if next < len(want) {
				should = want[next].String()
			}
			p.At(rank, step).Report(a.String(), should, "action %d of rank %d is %v; by the plan's schedule it is %s", i, rank, a, should)
			return
		}
		next = at + 1
		p.Saw(1)
	}
}

// sound checks the schedule as it was run: dependencies, and that it ends
// although every send waits for its receiver.
func sound(p *contract.Pass, first, step int, ran [][][]schedule.Action, plan schedule.Schedule) {
	s, ok := asRun(ran, plan, step)
	if !p.Found(ok) {
		return
	}
	err := schedule.Check(s)
	if err == nil {
		_, err = schedule.Simulate(s, schedule.Costs{}, schedule.Rendezvous)
	}
	if err != nil {
		p.At(first, step).Report(nil, nil, "the schedule that the pipeline of rank %d ran is wrong: %v", first, err)
	}
}

// liveBound is the most micro-batches whose activations a stage may hold: the
// formula of the schedule, and for interleaved ones what the simulation finds.
func liveBound(p *contract.Pass, plan schedule.Schedule) ([]int, bool) {
	if plan.Chunks == 1 {
		return plan.Figures().PeakLive, true
	}
	r, err := schedule.Simulate(plan, schedule.Costs{}, schedule.Rendezvous)
	if err != nil {
		p.Doubt("%v", err)
	}
	return r.PeakLive, err == nil
}

// live judges the activations that a stage held.
func live(p *contract.Pass, r *evidence.Run, rank, bound int, plan schedule.Schedule) {
	p.Expect(r.Config.Steps * plan.Micros * plan.Chunks)
	for e := range r.Events(rank, trace.KindLive) {
		p.Saw(1)
		if e.Count > int64(bound) {
			p.At(rank, e.Step).Report(e.Count, fmt.Sprintf("at most %d", bound),
				"stage %d holds activations of %d micro-batches, %s allows %d", r.At(rank).PP, e.Count, plan.Name, bound)
		}
	}
}

// activations judges the bytes that a stage allocated for them, as the
// allocator counted: at most what the micro-batches of the bound need. Chunks of
// the interleaved schedule differ in size, so each keeps buffers of its own: as
// many as its micro-batches are live at once in the plan's schedule.
func activations(p *contract.Pass, r *evidence.Run, rank, bound int, plan schedule.Schedule) {
	cfg, most := r.Config, int64(0)
	seqs := cfg.Plan.MaxSequences(cfg.Model, cfg.Sequences)
	for chunk, part := range cfg.Plan.Parts(cfg.Model, r.At(rank)) {
		acts, _ := model.Sizes(cfg.Model, part, seqs)
		held := bound
		if plan.Chunks > 1 {
			held = heldBy(plan.Stages[r.At(rank).PP], chunk)
		}
		most += 4 * int64(held) * int64(acts)
	}
	p.Expect(cfg.Steps)
	for e := range r.Events(rank, trace.KindMemory) {
		if e.What != names.MemActivations {
			continue
		}
		p.Saw(1)
		if e.Bytes > most || e.Bytes == 0 {
			p.At(rank, e.Step).Report(e.Bytes, fmt.Sprintf("at most %d", most),
				"stage %d allocated %d bytes for activations, %s needs %d", r.At(rank).PP, e.Bytes, plan.Name, most)
		}
	}
}

// heldBy is the most micro-batches of a chunk that a stage's actions keep live
// at once, from the pass or receive that begins a forward pass to the backward
// pass.
func heldBy(actions []schedule.Action, chunk int) int {
	live, most := map[int]bool{}, 0
	for _, a := range actions {
		switch {
		case a.Chunk != chunk:
		case a.Kind == schedule.Backward:
			delete(live, a.Micro)
		case a.Kind == schedule.RecvForward || a.Kind == schedule.Forward:
			live[a.Micro] = true
			most = max(most, len(live))
		}
	}
	return most
}

// idle is clause 6.
func idle(p *contract.Pass) {
	r, ok := subject.Read(p)
	if !ok {
		return
	}
	plan, ok := planned(p, r)
	if !ok {
		return
	}
	want, ok := slots(p, plan)
	if !ok {
		return
	}
	for _, ranks := range pipelines(r) {
		ran := lists(r, ranks)
		for step := range r.Config.Steps {
			s, complete := asRun(ran, plan, step)
			if !p.Found(complete) {
				continue
			}
			sim, err := schedule.Simulate(s, schedule.Costs{}, schedule.Rendezvous)
			if err != nil || sim.Finish != want {
				f := plan.Figures()
				p.At(ranks[0], step).Report(sim.Finish, want,
					"the schedule that the pipeline of rank %d ran takes %d slots, idle share %.4f; the plan's takes %d, idle share %.4f by the formula, overhead %.4f (error %v)", ranks[0], sim.Finish, sim.IdleShare(), want, f.IdleShare, f.Overhead, err)
			}
		}
	}
}

// slots is how long the plan's schedule takes in unit slots: 2(V*M+P-1), by
// which P stages, busy for 2*V*M each, idle (P-1)/(V*M+P-1) of the time; where
// the formula is a lower bound, what the simulation finds.
func slots(p *contract.Pass, plan schedule.Schedule) (int64, bool) {
	formula := 2 * int64(plan.Chunks*plan.Micros+len(plan.Stages)-1)
	if plan.Figures().Exact {
		return formula, true
	}
	r, err := schedule.Simulate(plan, schedule.Costs{}, schedule.Rendezvous)
	if err == nil && r.Finish < formula {
		err = fmt.Errorf("the plan's schedule takes %d slots, fewer than are possible: %d", r.Finish, formula)
	}
	if err != nil {
		p.Doubt("%v", err)
	}
	return r.Finish, err == nil
}
