package interleave

import "slices"

// clock says of every task how much of it is known to come before a point: its
// epochs below the number, by the task's id. Tasks beyond its end are unknown.
type clock []uint32

// knows reports whether an epoch of a task comes before.
func (c clock) knows(task int, epoch uint32) bool { return task < len(c) && epoch < c[task] }

// join takes in all that another clock knows.
func (c clock) join(o clock) clock {
	if n := len(o) - len(c); n > 0 {
		c = append(c, make(clock, n)...)
	}
	for i, v := range o {
		c[i] = max(c[i], v)
	}
	return c
}

// release is all that the task has done so far, which ends its epoch.
func (t *task) release() clock {
	c := slices.Clone(t.known).join(make(clock, t.id+1))
	t.epoch++
	c[t.id] = t.epoch
	return c
}

// acquire puts a moment before all that the task does next.
func (t *task) acquire(c clock) { t.known = t.known.join(c) }
