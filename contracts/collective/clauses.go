package collective

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// drilled is a drill's history beside its plan: records[r][i][k] is operation k
// of repetition i on rank r, complete with its result where one was recorded.
type drilled struct {
	Spec
	records   [][][]result
	refusals  []map[string]trace.Event // of misfits, by rank and name
	surpluses []trace.Event            // events that the plan does not have
	shared    map[operation]kernels.Digest
}

// operation tells one from another, whoever of its group recorded it.
type operation struct {
	seed      uint64
	op, group string
}

func (d *drilled) operation(r drill.Record) operation {
	var group []byte
	for _, rank := range r.Group {
		group = binary.AppendUvarint(group, uint64(rank))
	}
	return operation{r.Seed, r.Op, string(group)}
}

// expect is drill.Expect, computed once for all ranks that get one result and for
// all repetitions.
func (d *drilled) expect(r drill.Record) kernels.Digest {
	if !shared(r) {
		return drill.Expect(r)
	}
	op := d.operation(r)
	want, ok := d.shared[op]
	if !ok {
		want = drill.Expect(r)
		d.shared[op] = want
	}
	return want
}

// result is a planned operation and what came of it.
type result struct {
	drill.Record
	ok bool // recorded, and not ended by the deadline
}

// with is a check that is given the drill.
func with(check func(*contract.Pass, *drilled)) func(*contract.Pass) {
	return func(p *contract.Pass) {
		if h, ok := p.History(contract.Test); ok {
			if d, err := read(h); err != nil {
				p.Doubt("%v", err)
			} else {
				check(p, d)
			}
		}
	}
}

// read matches the events with the plan, by their order.
func read(h *trace.History) (*drilled, error) {
	d := &drilled{shared: map[operation]kernels.Digest{}}
	if h.Header.Spec.Drill == nil {
		return nil, fmt.Errorf("spec: %s: not of a drill", h.Header.Spec.Name())
	}
	if err := trace.Strict(h.Header.Spec.Drill, &d.Spec); err != nil {
		return nil, fmt.Errorf("spec of the drill: %v", err)
	}
	if err := d.Spec.Check(); err != nil {
		return nil, err
	}
	if h.Header.World != d.World {
		return nil, fmt.Errorf("a history of %d ranks, a drill of %d", h.Header.World, d.World)
	}
	if err := d.bounded(h); err != nil {
		return nil, err
	}
	for rank := range d.World {
		d.refusals = append(d.refusals, map[string]trace.Event{})
		d.records = append(d.records, d.rank(h, rank))
	}
	return d, nil
}

// bounded refuses a history that has so much less than its spec claims that listing
// all that lacks would take ages: a plan has, on every rank, several operations for
// each other rank.
func (d *drilled) bounded(h *trace.History) error {
	recorded := 0
	for e := range h.All {
		if e.Kind == trace.KindDrill {
			recorded++
		}
	}
	const little, perEvent = 1 << 14, 1 << 6
	if implied := d.World * d.Repeats * drill.Iterations(d.Level) * (64 + 8*d.World); implied > little+perEvent*recorded {
		return fmt.Errorf("%d operations are recorded, far too few for a drill of %d ranks, level %d, %d times", recorded, d.World, d.Level, d.Repeats)
	}
	return nil
}

func (d *drilled) rank(h *trace.History, rank int) [][]result {
	plan := drill.Plan(d.World, rank, d.Seed, d.Level)
	events := make([][]*trace.Event, d.Repeats)
	for i := range h.Ranks[rank] {
		switch e := &h.Ranks[rank][i]; {
		case e.Kind != trace.KindDrill:
		case e.What == Mismatch:
			d.refusals[rank][e.Unit] = *e
		case e.Step < 0 || e.Step >= d.Repeats:
			d.surpluses = append(d.surpluses, *e)
		default:
			events[e.Step] = append(events[e.Step], e)
		}
	}
	var out [][]result
	for _, found := range events {
		all := make([]result, len(plan))
		// An event that is not the plan's shows that some are missing: all that
		// follow are then of unknown operations.
		ok := true
		for k, rec := range plan {
			all[k].Record = rec
			if ok = ok && k < len(found) && fits(rec, found[k]); ok {
				// What the deadline ended was slow, which is neither right nor wrong.
				all[k].Digest, all[k].Err, all[k].ok = *found[k].Digest, found[k].Text, !strings.Contains(found[k].Text, names.Late)
			}
		}
		for _, e := range found[min(len(plan), len(found)):] {
			if !strings.Contains(e.Text, names.Late) { // making a group may be late too
				d.surpluses = append(d.surpluses, *e)
			}
		}
		out = append(out, all)
	}
	return out
}

func fits(rec drill.Record, e *trace.Event) bool {
	return e.Digest != nil && e.Op == rec.Op && e.Count == int64(rec.Count) && slices.Equal(e.Ranks, rec.Group)
}

// each is a check of the operations that choose selects against their right
// results.
func each(choose func(d *drilled, r drill.Record) bool) func(*contract.Pass) {
	return with(func(p *contract.Pass, d *drilled) {
		for rank := range d.records {
			for i, all := range d.records[rank] {
				for _, r := range all {
					if !choose(d, r.Record) || d.Algorithm != names.Tree && ordered(d, r.Record) || !p.Found(r.ok) {
						continue
					}
					if want := d.expect(r.Record); r.Err != "" {
						report(p, i, r.Record, want, " failed: "+r.Err)
					} else if r.Digest != want {
						report(p, i, r.Record, want, ": wrong result")
					}
				}
			}
		}
		for _, e := range d.surpluses {
			p.At(e.Rank, e.Step).Report(nil, nil, "rank %d recorded an operation that the drill does not have: %s", e.Rank, e.Op)
		}
	})
}

// ordered selects results that depend on the order of the ranks: of additions,
// and of equal maxima, +0 and -0.
func ordered(_ *drilled, r drill.Record) bool {
	return r.Input == drill.Order && (r.Op == names.OpAllReduce || r.Op == names.OpReduceScatter)
}

// report adds a finding about the result of an operation, which should have the
// digest want. What is wrong with it follows the operation's description.
func report(p *contract.Pass, repeat int, r drill.Record, want kernels.Digest, wrong string) {
	got := r.Err
	if got == "" {
		got = text(r.Digest)
	}
	p.At(r.Rank, repeat).Report(got, text(want), "%s%s", describe(r), wrong)
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
func right(d *drilled, r drill.Record) bool { return !ordered(d, r) }

// sized is clause 3.
func sized(_ *drilled, r drill.Record) bool {
	return r.Count == 0 || r.Count%len(r.Group) != 0 || r.Bounds != nil
}

// grouped is clause 4.
func grouped(d *drilled, r drill.Record) bool {
	return len(r.Group) != d.World || r.Op == names.OpBroadcast
}

// placed is clause 5.
func placed(_ *drilled, r drill.Record) bool {
	return r.Op == names.OpReduceScatter || r.Op == names.OpAllGather
}

// repeated is clause 6: digest against digest of the first time.
func repeated(p *contract.Pass, d *drilled) {
	for rank := range d.records {
		first := d.records[rank][0]
		for i, all := range d.records[rank][1:] {
			for k, r := range all {
				if p.Found(r.ok && first[k].ok) && (r.Digest != first[k].Digest || r.Err != first[k].Err) {
					report(p, i+1, r.Record, first[k].Digest, ": another result than the first time")
				}
			}
		}
	}
}

// agreed is clause 7: the results that all ranks of a group share are equal, and
// operations that do not fit are refused everywhere.
func agreed(p *contract.Pass, d *drilled) {
	for i := range d.Repeats {
		d.agree(p, i)
	}
	if d.World < 2 {
		return
	}
	for _, m := range drill.Misfits(d.World) {
		for rank, call := range m.Calls {
			e, ok := d.refusals[rank][m.Name]
			ok = ok && e.Op == call.Op && e.Count == int64(call.Count)
			if p.Found(ok) && !strings.Contains(e.Text, names.Mismatch) {
				p.At(rank, 0).Of(m.Name).Report(e.Text, names.Mismatch,
					"rank %d was not told that the ranks' calls do not fit, when it called %s: %s", rank, e.Op, m.Name)
			}
		}
	}
}

// agree compares the ranks of one repetition.
func (d *drilled) agree(p *contract.Pass, repeat int) {
	firsts := map[operation]drill.Record{}
	for rank := range d.records {
		for _, r := range d.records[rank][repeat] {
			if !shared(r.Record) || !p.Found(r.ok) {
				continue
			}
			k := d.operation(r.Record)
			if first, seen := firsts[k]; !seen {
				firsts[k] = r.Record
			} else if r.Digest != first.Digest {
				report(p, repeat, r.Record, first.Digest, fmt.Sprintf(": another result than on rank %d", first.Rank))
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
