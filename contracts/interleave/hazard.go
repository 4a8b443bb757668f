package interleave

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/trace"
)

// Hazard is something that a schedule shows, or that no schedule needs to show.
type Hazard struct {
	What string // trace.Unordered, trace.Released, trace.Deadlock or trace.Failed
	Rank int    // who made the second of two uses, did not come, or failed
	Step int    // of its last operation of a communicator; -1 before the first
	Unit string // what the operation moves that one of the uses belongs to, where one does
	Text string
}

// hazards are those of a run, each kind of meeting once.
type hazards struct {
	list []Hazard
	seen map[any]bool
}

// most bounds the hazards that are kept: one mistake may show at every use.
const most = 64

// add keeps a hazard unless one like it, by key, or too many are there.
func (l *hazards) add(h Hazard, key any) {
	if l.seen[key] || len(l.list) == most {
		return
	}
	if l.seen == nil {
		l.seen = map[any]bool{}
	}
	l.seen[key] = true
	l.list = append(l.list, h)
}

// meeting is the key of two uses.
type meeting struct {
	memory                *shadow
	first, second         *task
	firstDoes, secondDoes string
	firstFor, secondFor   string
}

// unordered keeps two uses of which neither comes first.
func (s *Scheduler) unordered(m *shadow, a, b *use) {
	unit := b.unit
	if unit == "" {
		unit = a.unit
	}
	s.hazards.add(Hazard{What: trace.Unordered, Rank: b.by.rank, Step: b.by.step, Unit: unit, Text: fmt.Sprintf(
		"%s and %s use elements [%d,%d) of memory of rank %d, and neither comes before the other",
		b, a, max(a.lo, b.lo), min(a.hi, b.hi), m.rank)},
		meeting{m, a.by, b.by, a.does, b.does, a.unit, b.unit})
}

// released keeps a use of elements that were given up.
func (s *Scheduler) released(m *shadow, u *use, lo, hi int) {
	s.hazards.add(Hazard{What: trace.Released, Rank: u.by.rank, Step: u.by.step, Unit: u.unit, Text: fmt.Sprintf(
		"%s uses elements [%d,%d) of memory of rank %d, which was given up and not written since", u, lo, hi, m.rank)},
		meeting{memory: m, second: u.by, secondDoes: u.does, secondFor: u.unit})
}

// String is who does what, and in which operation.
func (u *use) String() string {
	verb := "reads"
	if u.writes {
		verb = "writes"
	}
	s := fmt.Sprintf("%s (%s, which %s)", u.by.name, u.does, verb)
	if u.op != nil {
		s += " in " + u.op.what()
	}
	return s
}
