package interleave

import (
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/kernels"
)

// shadow is what is known of a buffer.
type shadow struct {
	rank int // whose
	uses []use
	dead []span // given up and not written since; ascending, apart
}

// use is the last use of elements by a task, for those that may conflict with it.
type use struct {
	span
	by     *task
	epoch  uint32
	writes bool
	does   string // the kernel
	op     *operation
	unit   string // what op moves
}

// span is elements [lo, hi) of a buffer.
type span struct{ lo, hi int }

func (a span) overlaps(b span) bool { return max(a.lo, b.lo) < min(a.hi, b.hi) }
func (a span) covers(b span) bool   { return a.lo <= b.lo && b.hi <= a.hi }

// extent is the span from a tensor's first element to its last.
func extent(x kernels.Tensor) span {
	return span{x.Off, x.Off + (x.Rows-1)*x.Stride + x.Cols}
}

// allocated begins to watch a buffer.
func (s *Scheduler) allocated(rank int, b kernels.Buffer) {
	s.memory[b] = &shadow{rank: rank}
}

// Released is the hook of that name: what is given up is NaN until it is written.
func (s *Scheduler) Released(rank int, x kernels.Tensor) {
	if s.current == nil || x.Len() == 0 {
		return
	}
	s.touch("release", x, true)
	s.backends[rank].Fill(x, math.NaN())
	if m := s.memory[x.Buf]; m != nil {
		m.bury(extent(x))
	}
}

// touch checks a use of a tensor by the current task, and keeps it.
func (s *Scheduler) touch(does string, x kernels.Tensor, writes bool) {
	if x.Absent() || x.Len() == 0 {
		return
	}
	m, t := s.memory[x.Buf], s.current
	if m == nil {
		return
	}
	s.ranks[t.rank].uses++
	u := use{extent(x), t, t.epoch, writes, does, nil, ""}
	if t.op != nil {
		t.op.begin(t)
		u.op, u.unit = t.op, t.op.label.Tensor
	}
	if len(m.dead) > 0 {
		s.exhume(m, &u, x)
	}
	s.keep(m, &u)
}

// keep checks a use against those before it and keeps what later ones need.
func (s *Scheduler) keep(m *shadow, u *use) {
	for i := range m.uses {
		o := &m.uses[i]
		if o.by == u.by && o.epoch == u.epoch && o.op == u.op && o.covers(u.span) && (o.writes || !u.writes) {
			return // whoever came between was held against that one
		}
	}
	kept := m.uses[:0]
	for i := range m.uses {
		o := &m.uses[i]
		if o.overlaps(u.span) && o.by != u.by && (o.writes || u.writes) && (o.op == nil || o.op != u.op) && !u.by.known.knows(o.by.id, o.epoch) {
			s.unordered(m, o, u)
		}
		// Whatever conflicts with a use that this one covers conflicts with this one,
		// or comes after both.
		if u.covers(o.span) && (u.writes || !o.writes && o.by == u.by && o.op == u.op) {
			continue
		}
		kept = append(kept, *o)
	}
	m.uses = append(kept, *u)
}

// exhume checks a use against elements that were given up, row by row: a write
// gives them a content again.
func (s *Scheduler) exhume(m *shadow, u *use, x kernels.Tensor) {
	rows, cols, stride := x.Rows, x.Cols, x.Stride
	if x.Contiguous() {
		rows, cols = 1, x.Len()
	}
	for r := range rows {
		row := span{x.Off + r*stride, x.Off + r*stride + cols}
		if u.writes {
			m.revive(row)
			continue
		}
		for _, d := range m.dead {
			if d.overlaps(row) {
				s.released(m, u, max(d.lo, row.lo), min(d.hi, row.hi))
			}
		}
	}
}

// bury adds elements to those that were given up.
func (m *shadow) bury(x span) {
	m.revive(x)
	i, _ := slices.BinarySearchFunc(m.dead, x.lo, func(d span, lo int) int { return d.lo - lo })
	m.dead = slices.Insert(m.dead, i, x)
}

// revive takes elements from those that were given up.
func (m *shadow) revive(x span) {
	if !slices.ContainsFunc(m.dead, x.overlaps) {
		return
	}
	var left []span
	for _, d := range m.dead {
		if !d.overlaps(x) {
			left = append(left, d)
			continue
		}
		if d.lo < x.lo {
			left = append(left, span{d.lo, x.lo})
		}
		if x.hi < d.hi {
			left = append(left, span{x.hi, d.hi})
		}
	}
	m.dead = left
}
