package kern

import (
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels/drill"
)

// tally is what a backend said of its routines at one time.
type tally struct {
	listed bool // it said how many there are
	many   int64
	names  []string
	calls  map[string]int64
}

// complete reports whether as many routines are recorded as the backend lists.
func (t *tally) complete() bool { return t.listed && int64(len(t.names)) == t.many }

// tallies are those of a rank's events, by What.
func tallies(events []trace.Event) map[string]*tally {
	out := map[string]*tally{}
	for _, what := range times() {
		out[what] = &tally{calls: map[string]int64{}}
	}
	for _, e := range events {
		t := out[e.What]
		switch {
		case e.Kind != trace.KindRoutine || t == nil:
		case e.Unit == "":
			t.listed, t.many = true, e.Count
		default:
			t.names = append(t.names, e.Unit)
			t.calls[e.Unit] = e.Count
		}
	}
	return out
}

// times are when routines are counted.
func times() []string { return []string{trace.Before, trace.After, trace.Idle} }

// part is what a rank recorded in the run of a role.
type part struct {
	role    contract.Role
	backend string
	events  []trace.Event
}

// ran is clause 8: over all runs of the case every kernel ran on every rank, and every
// routine that its backend has.
func ran(p *contract.Pass) {
	parts := map[int][]part{} // by rank
	for _, role := range slices.Sorted(maps.Keys(p.Histories)) {
		h, ok := p.History(role)
		if !ok {
			continue
		}
		if _, err := specOf(h); err != nil {
			p.Doubt("%s run: %v", role, err)
			continue
		}
		for rank, events := range h.Ranks {
			parts[rank] = append(parts[rank], part{role, h.Of(rank).Backend, events})
		}
	}
	if len(parts) == 0 {
		everyKernel(p, nil) // none did
	}
	for _, rank := range slices.Sorted(maps.Keys(parts)) {
		ranOn(p, rank, parts[rank])
	}
}

// ranOn is clause 8 for one rank.
func ranOn(p *contract.Pass, rank int, parts []part) {
	kernels, calls := map[string]bool{}, map[string]int64{}
	var names []string // of the first run whose tally is there
	first := true
	for _, x := range parts {
		for _, e := range x.events {
			if e.Kind == trace.KindKernel {
				kernels[e.Op] = true
			}
		}
		list, counted := count(p, rank, x, calls)
		counted = counted && counts(p, x, list)
		switch {
		case !counted:
		case first:
			names, first = list, false
		case !slices.Equal(list, names):
			p.At(rank, 0).Report(len(list), len(names), "the %s run lists other routines than the one before", x.role)
		}
	}
	everyKernel(p, kernels)
	everyRoutine(p, names, calls)
}

// counts expects a run of kernels to have called a routine of those that are
// listed, as every run does of a backend that is not plain Go: a tally that says
// nothing of what ran is not one that says that nothing is left out.
func counts(p *contract.Pass, x part, list []string) bool {
	if plain(x.backend) || !kernelsRan(x.events) {
		return true
	}
	all := tallies(x.events)
	for _, name := range list {
		if all[trace.After].calls[name] > all[trace.Before].calls[name] {
			return p.Found(true)
		}
	}
	p.Doubt("%s run: backend %s is not plain Go, and of the %d routines that it lists none ran", x.role, x.backend, len(list))
	return p.Found(false)
}

// kernelsRan reports whether a drill called kernels, and not memory alone.
func kernelsRan(events []trace.Event) bool {
	for _, e := range events {
		if e.Kind == trace.KindKernel && e.Op != drill.Memory && e.Op != drill.Misuse {
			return true
		}
	}
	return false
}

// everyKernel expects each kernel to have run.
func everyKernel(p *contract.Pass, ran map[string]bool) {
	var never []string
	for _, f := range Families() {
		for _, k := range f.Kernels {
			if k != drill.Memory && k != drill.Misuse && !p.Found(ran[k]) {
				never = append(never, k)
			}
		}
	}
	if len(never) > 0 {
		p.Doubt("kernels that never ran: %s", strings.Join(never, ", "))
	}
}

// everyRoutine expects each routine to have been called.
func everyRoutine(p *contract.Pass, names []string, calls map[string]int64) {
	var never []string
	for _, name := range names {
		if !p.Found(calls[name] > 0) {
			never = append(never, name)
		}
	}
	if len(never) > 0 {
		p.Doubt("routines that never ran: %s", strings.Join(never, "; "))
	}
}

// count adds the calls that a run made, and lists its routines. A tally that
// contradicts itself is reported.
func count(p *contract.Pass, rank int, x part, calls map[string]int64) (names []string, ok bool) {
	all, role := tallies(x.events), x.role
	for _, what := range times() {
		if !p.Found(all[what].complete()) {
			p.Doubt("%s run: backend %s: no complete tally of its routines (%s)", role, x.backend, what)
			return nil, false
		}
	}
	before, after, idle := all[trace.Before], all[trace.After], all[trace.Idle]
	at := p.At(rank, 0)
	if len(before.calls) != len(before.names) {
		at.Report(nil, nil, "the %s run: the tally lists a routine twice", role)
	}
	for _, t := range []*tally{after, idle} {
		if !slices.Equal(t.names, before.names) {
			at.Report(len(t.names), len(before.names), "the %s run: the tally lists other routines than before", role)
		}
	}
	for _, name := range before.names {
		switch a, b, c := before.calls[name], after.calls[name], idle.calls[name]; {
		case b < a || c < b:
			at.Of(name).Report(min(b, c), a, "the %s run: the tally counts backwards", role)
		case c != b:
			at.Of(name).Report(c, b, "the %s run: the tally moves while nothing runs", role)
		default:
			calls[name] += b - a
		}
	}
	return before.names, true
}
