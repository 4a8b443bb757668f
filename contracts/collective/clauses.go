package collective

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/comm/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// drilled is a drill's history beside its plan: records[r][i][k] is operation k
// of repetition i on rank r, complete with its result where one was recorded.
type drilled struct {
	Spec
	records   [][][]result
	refusals  map[int]trace.Event // of the mismatch, by rank
	surpluses []trace.Event       // events that the plan does not have
}

// result is a planned operation and what came of it.
type result struct {
	drill.Record
	ok bool // recorded
}

// read matches the events with the plan, by their order.
func read(p *contract.Pass) (*drilled, bool) {
	h, ok := p.History(contract.Test)
	if !ok {
		return nil, false
	}
	d := &drilled{refusals: map[int]trace.Event{}}
	if err := json.Unmarshal(h.Header.Spec, &d.Spec); err != nil {
		p.Doubt("spec of the drill: %v", err)
		return nil, false
	}
	if err := d.Spec.Check(); err != nil {
		p.Doubt("%v", err)
		return nil, false
	}
	if h.Header.World != d.World {
		p.Doubt("a history of %d ranks, a drill of %d", h.Header.World, d.World)
		return nil, false
	}
	for rank := range d.World {
		d.records = append(d.records, d.rank(h, rank))
	}
	return d, true
}

func (d *drilled) rank(h *trace.History, rank int) [][]result {
	plan := drill.Plan(d.World, rank, d.Seed, d.Level)
	events := make([][]trace.Event, d.Repeats)
	for _, e := range h.Ranks[rank] {
		switch {
		case e.Kind != trace.KindDrill:
		case e.What == Mismatch:
			d.refusals[rank] = e
		case e.Step < 0 || e.Step >= d.Repeats:
			d.surpluses = append(d.surpluses, e)
		default:
			events[e.Step] = append(events[e.Step], e)
		}
	}
	var out [][]result
	for i := range d.Repeats {
		all := make([]result, len(plan))
		for k, rec := range plan {
			all[k].Record = rec
			// An event that is not the plan's shows that some are missing: all
			// that follow are then of unknown operations.
			if k < len(events[i]) && fits(rec, events[i][k]) {
				all[k].Digest, all[k].Err, all[k].ok = *events[i][k].Digest, events[i][k].Text, true
				continue
			}
			for j := k + 1; j < len(plan); j++ {
				all[j].Record = plan[j]
			}
			break
		}
		if len(events[i]) > len(plan) {
			d.surpluses = append(d.surpluses, events[i][len(plan):]...)
		}
		out = append(out, all)
	}
	return out
}

func fits(rec drill.Record, e trace.Event) bool {
	return e.Digest != nil && e.Op == rec.Op && e.Count == int64(rec.Count) && slices.Equal(e.Ranks, rec.Group)
}

// each judges the operations that choose selects against their right results.
// Every kind of name, which choose gives, must be among them.
func (d *drilled) each(p *contract.Pass, choose func(r drill.Record) bool) {
	for rank := range d.records {
		for i, all := range d.records[rank] {
			for _, r := range all {
				if !choose(r.Record) || (d.Algorithm != names.Tree && ordered(r.Record)) {
					continue
				}
				p.Expect(1)
				if !r.ok {
					continue
				}
				p.Saw(1)
				if err := drill.Verify(r.Record); err != nil {
					p.Report(finding(r.Record, i, drill.Expect(r.Record), err))
				}
			}
		}
	}
	for _, e := range d.surpluses {
		p.At(e.Rank, e.Step).Report(nil, nil, "rank %d recorded an operation that the drill does not have: %s", e.Rank, e.Op)
	}
}

// ordered reports whether the result depends on the order of the ranks: of
// additions, and of equal maxima, +0 and -0.
func ordered(r drill.Record) bool {
	return r.Input == drill.Order && (r.Op == names.OpAllReduce || r.Op == names.OpReduceScatter)
}

func finding(r drill.Record, repeat int, want kernels.Digest, err error) contract.Finding {
	f := contract.Finding{Rank: r.Rank, Step: repeat, Index: -1, Message: describe(r) + ": wrong result"}
	f.Got, f.Want = text(r.Digest), text(want)
	if r.Err != "" {
		f.Got, f.Message = r.Err, describe(r)+" failed: "+err.Error()
	}
	return f
}

func text(d kernels.Digest) string {
	b, _ := d.MarshalText() // never fails
	return "digest " + string(b)
}

// describe names an operation.
func describe(r drill.Record) string {
	s := fmt.Sprintf("%s of %d elements on rank %d of group %v", r.Op, r.Count, r.Rank, r.Group)
	switch r.Op {
	case names.OpAllReduce, names.OpReduceScatter, names.OpAllReduceInt:
		s += fmt.Sprintf(", %s of %s inputs", r.Reduction, r.Input)
	case names.OpBroadcast:
		s += fmt.Sprintf(", root %d", r.Peer)
	case names.OpSend:
		s += fmt.Sprintf(", to %d", r.Peer)
	case names.OpRecv:
		s += fmt.Sprintf(", from %d", r.Peer)
	}
	if r.Bounds != nil {
		s += fmt.Sprintf(", parts at %v", r.Bounds)
	}
	if (r.Op == names.OpReduceScatter || r.Op == names.OpAllGather) && r.InPlace {
		s += ", in place"
	}
	return s
}

// right is clause 1.
func right(p *contract.Pass) {
	if d, ok := read(p); ok {
		d.each(p, func(r drill.Record) bool { return !ordered(r) })
	}
}

// canonical is clause 2.
func canonical(p *contract.Pass) {
	if d, ok := read(p); ok {
		d.each(p, ordered)
	}
}

// sized is clause 3.
func sized(p *contract.Pass) {
	if d, ok := read(p); ok {
		d.each(p, func(r drill.Record) bool { return r.Count == 0 || r.Count%len(r.Group) != 0 || r.Bounds != nil })
	}
}

// grouped is clause 4.
func grouped(p *contract.Pass) {
	if d, ok := read(p); ok {
		d.each(p, func(r drill.Record) bool { return len(r.Group) != d.World || r.Op == names.OpBroadcast })
	}
}

// placed is clause 5.
func placed(p *contract.Pass) {
	if d, ok := read(p); ok {
		d.each(p, func(r drill.Record) bool { return r.Op == names.OpReduceScatter || r.Op == names.OpAllGather })
	}
}

// repeated is clause 6: digest against digest of the first time.
func repeated(p *contract.Pass) {
	d, ok := read(p)
	if !ok {
		return
	}
	for rank := range d.records {
		first := d.records[rank][0]
		for i, all := range d.records[rank][1:] {
			p.Expect(len(all))
			for k, r := range all {
				if !r.ok || !first[k].ok {
					continue
				}
				p.Saw(1)
				if r.Digest != first[k].Digest || r.Err != first[k].Err {
					f := finding(r.Record, i+1, first[k].Digest, fmt.Errorf("%s", r.Err))
					f.Message = describe(r.Record) + ": another result than the first time"
					p.Report(f)
				}
			}
		}
	}
}

// agreed is clause 7: the results that all ranks of a group share are equal, and
// operations that do not fit are refused everywhere.
func agreed(p *contract.Pass) {
	d, ok := read(p)
	if !ok {
		return
	}
	for i := range d.Repeats {
		d.agree(p, i)
	}
	if d.World < 2 {
		return
	}
	p.Expect(d.World)
	for rank := range d.World {
		e, ok := d.refusals[rank]
		if !ok {
			continue
		}
		p.Saw(1)
		if !strings.Contains(e.Text, names.Mismatch) {
			p.At(rank, 0).Report(e.Text, names.Mismatch, "rank %d was not told that the ranks called %s with different sizes", rank, e.Op)
		}
	}
}

// agree compares the ranks of one repetition.
func (d *drilled) agree(p *contract.Pass, repeat int) {
	type key struct {
		seed  uint64
		op    string
		group string
	}
	firsts := map[key]drill.Record{}
	for rank := range d.records {
		for _, r := range d.records[rank][repeat] {
			if !shared(r.Record) {
				continue
			}
			p.Expect(1)
			if !r.ok {
				continue
			}
			p.Saw(1)
			k := key{r.Seed, r.Op, fmt.Sprint(r.Group)}
			first, seen := firsts[k]
			if !seen {
				firsts[k] = r.Record
				continue
			}
			if r.Digest != first.Digest {
				f := finding(r.Record, repeat, first.Digest, fmt.Errorf("%s", r.Err))
				f.Message = describe(r.Record) + fmt.Sprintf(": another result than on rank %d", first.Rank)
				p.Report(f)
			}
		}
	}
}

// shared reports whether all ranks of the group get the same result.
func shared(r drill.Record) bool {
	switch r.Op {
	case names.OpAllReduce, names.OpAllGather, names.OpBroadcast, names.OpAllReduceInt, names.OpAllGatherBytes:
		return true
	}
	return false
}
