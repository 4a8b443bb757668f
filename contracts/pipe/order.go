package pipe

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/schedule/simulator"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// actions reads back what a stage did in each step from the first on: passes from phases, in which
// consecutive units of one pass are one action, and transfers from messages.
func actions(r *evidence.Run, rank int) [][]schedule.Action {
	units := chunks(r, rank)
	out := make([][]schedule.Action, r.Len())
	for _, e := range r.Ranks[rank] {
		if e.Step < r.First || e.Step >= r.Steps {
			continue
		}
		list := &out[e.Step-r.First]
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
			*list = append(*list, transfer(e, r.Config.Plan.PP))
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

// withPlan is a check that is given the plan's schedule.
func withPlan(check func(*contract.Pass, *evidence.Run, schedule.Schedule) error) func(*contract.Pass) {
	return subject.With(func(p *contract.Pass, r *evidence.Run) {
		s, err := schedule.Named(r.Config.Plan.Schedule, r.Config.Plan.PP, r.Config.Plan.Virtual, r.Config.Plan.MicroBatches)
		if err == nil {
			err = check(p, r, s)
		}
		if err != nil {
			p.Doubt("%v", err)
		}
	})
}

// simulate runs a schedule in unit slots, each send waiting for its receiver.
func simulate(s schedule.Schedule) (simulator.Result, error) {
	return simulator.Run(s, simulator.Costs{}, simulator.Rendezvous)
}

// asRun is a pipeline's schedule as it was run in each step from the first on.
func asRun(r *evidence.Run, ranks []int, plan schedule.Schedule) []schedule.Schedule {
	out := make([]schedule.Schedule, r.Len())
	for step := range out {
		out[step] = schedule.Schedule{Name: plan.Name, Chunks: plan.Chunks, Micros: plan.Micros}
	}
	for _, rank := range ranks {
		for step, list := range actions(r, rank) {
			out[step].Stages = append(out[step].Stages, list)
		}
	}
	return out
}

// complete reports whether no stage recorded fewer actions than the plan has.
func complete(s, plan schedule.Schedule) bool {
	for stage, list := range plan.Stages {
		if len(s.Stages[stage]) < len(list) {
			return false
		}
	}
	return true
}

// scheduled is clause 5.
func scheduled(p *contract.Pass, r *evidence.Run, plan schedule.Schedule) error {
	bound, err := liveBound(plan)
	if err != nil {
		return err
	}
	for _, ranks := range r.Along(names.PP) {
		for step, s := range asRun(r, ranks, plan) {
			for stage, rank := range ranks {
				follows(p.At(rank, r.First+step), s.Stages[stage], plan.Stages[stage], r.Told(rank, r.First+step, trace.KindPhase) && r.Told(rank, r.First+step, trace.KindMessage))
			}
			if p.Found(complete(s, plan)) {
				sound(p.At(ranks[0], r.First+step), s)
			}
		}
		for stage, rank := range ranks {
			live(p, r, rank, bound[stage], plan)
			activations(p, r, rank, bound[stage], plan)
		}
	}
	return nil
}

// follows checks that a stage's actions are the plan's, in its order. What the
// record lacks is missing evidence, unless all was told; what it has beside or before
// the plan's is not.
func follows(at contract.At, got, want []schedule.Action, told bool) {
	at.Pass.Expect(len(want))
	rest := want
	for i, a := range got {
		n := slices.Index(rest, a)
		if n < 0 {
			should := "nothing more"
			if len(rest) > 0 {
				should = rest[0].String()
			}
			at.Report(a, should, "action %d of rank %d is %v; by the plan's schedule it is %s", i, at.Rank, a, should)
			return
		}
		if n > 0 && told {
			at.Report(a, rest[0].String(), "action %d of rank %d is %v; by the plan's schedule it is %s", i, at.Rank, a, rest[0])
			return
		}
		rest = rest[n+1:]
		at.Pass.Saw(1)
	}
	if len(rest) > 0 && told {
		at.Report(nil, rest[0].String(), "rank %d ends its step without %s", at.Rank, rest[0])
	}
}

// sound checks the schedule of a pipeline as it was run: dependencies, and that
// it ends although every send waits for its receiver.
func sound(at contract.At, s schedule.Schedule) {
	err := simulator.Check(s)
	if err == nil {
		_, err = simulate(s)
	}
	if err != nil {
		at.Report(nil, nil, "the schedule that the pipeline of rank %d ran is wrong: %v", at.Rank, err)
	}
}

// liveBound is the most micro-batches whose activations a stage may hold: the
// formula of the schedule, and for interleaved ones what the simulation finds.
func liveBound(plan schedule.Schedule) ([]int, error) {
	if plan.Chunks == 1 {
		return plan.Figures().PeakLive, nil
	}
	r, err := simulate(plan)
	return r.PeakLive, err
}

// live judges the activations that a stage held.
func live(p *contract.Pass, r *evidence.Run, rank, bound int, plan schedule.Schedule) {
	p.Expect(r.Len() * plan.Micros * plan.Chunks)
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
	p.Expect(r.Len())
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
func idle(p *contract.Pass, r *evidence.Run, plan schedule.Schedule) error {
	want, err := slots(plan)
	if err != nil {
		return err
	}
	f := plan.Figures()
	for _, ranks := range r.Along(names.PP) {
		for step, s := range asRun(r, ranks, plan) {
			if !p.Found(complete(s, plan)) {
				continue
			}
			if sim, err := simulate(s); err != nil || sim.Finish != want {
				p.At(ranks[0], r.First+step).Report(sim.Finish, want,
					"the schedule that the pipeline of rank %d ran takes %d slots, idle share %.4f; "+
						"the plan's takes %d, idle share %.4f by the formula, overhead %.4f (error %v)",
					ranks[0], sim.Finish, sim.IdleShare(), want, f.IdleShare, f.Overhead, err)
			}
		}
	}
	return nil
}

// slots is how long the plan's schedule takes in unit slots: 2(V*M+P-1), by
// which P stages, busy for 2*V*M each, idle (P-1)/(V*M+P-1) of the time; where
// the formula is a lower bound, what the simulation finds.
func slots(plan schedule.Schedule) (int64, error) {
	formula := 2 * int64(plan.Chunks*plan.Micros+len(plan.Stages)-1)
	if plan.Figures().Exact {
		return formula, nil
	}
	r, err := simulate(plan)
	if err == nil && r.Finish < formula {
		err = fmt.Errorf("the plan's schedule takes %d slots, fewer than are possible: %d", r.Finish, formula)
	}
	return r.Finish, err
}
