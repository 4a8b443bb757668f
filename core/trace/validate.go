package trace

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// field is a field of Event that only some kinds have.
type field struct {
	name string // in JSON
	set  func(e *Event) bool
}

// fields are the fields of Event but kind, rank and step, in its order.
var fields = [...]field{
	{"what", func(e *Event) bool { return e.What != "" }},
	{"tensor", func(e *Event) bool { return e.Tensor != "" }},
	{"unit", func(e *Event) bool { return e.Unit != "" }},
	{"worker", func(e *Event) bool { return e.Worker != 0 }},
	{"micro", func(e *Event) bool { return e.Micro != 0 }},
	{"op", func(e *Event) bool { return e.Op != "" }},
	{"group", func(e *Event) bool { return e.Group != "" }},
	{"ranks", func(e *Event) bool { return len(e.Ranks) > 0 }},
	{"overlap", func(e *Event) bool { return e.Overlap }},
	{"seq", func(e *Event) bool { return e.Seq != 0 }},
	{"peer", func(e *Event) bool { return e.Peer != 0 }},
	{"lo", func(e *Event) bool { return e.Lo != 0 }},
	{"hi", func(e *Event) bool { return e.Hi != 0 }},
	{"count", func(e *Event) bool { return e.Count != 0 }},
	{"bytes", func(e *Event) bool { return e.Bytes != 0 }},
	{"moved", func(e *Event) bool { return e.Moved != 0 }},
	{"once", func(e *Event) bool { return e.Once }},
	{"digest", func(e *Event) bool { return e.Digest != nil }},
	{"squares", func(e *Event) bool { return e.Squares != 0 }},
	{"span", func(e *Event) bool { return e.Span != nil }},
	{"ids", func(e *Event) bool { return len(e.IDs) > 0 }},
	{"ranges", func(e *Event) bool { return len(e.Ranges) > 0 }},
	{"value", func(e *Event) bool { return e.Value != 0 }},
	{"bits", func(e *Event) bool { return e.Bits != 0 }},
	{"index", func(e *Event) bool { return e.Index != 0 }},
	{"got", func(e *Event) bool { return e.Got != 0 }},
	{"want", func(e *Event) bool { return e.Want != 0 }},
	{"text", func(e *Event) bool { return e.Text != "" }},
	{"data", func(e *Event) bool { return len(e.Data) > 0 }},
}

// compiled is a Form with sets of fields as bits, of their place in fields.
type compiled struct {
	Form
	needs, may uint32
	what       []string
}

// forms are the forms by kind.
var forms = sync.OnceValue(func() map[Kind]*compiled {
	out := map[Kind]*compiled{}
	for _, f := range Forms() {
		c := &compiled{Form: f, needs: bitsOf(f.Needs)}
		c.may = c.needs | bitsOf(f.May)
		for _, v := range f.What {
			c.what = append(c.what, v.Name)
		}
		out[f.Kind] = c
	}
	return out
})

func bitsOf(list []string) (set uint32) {
	for i, f := range fields {
		if slices.Contains(list, f.name) {
			set |= 1 << i
		}
	}
	return set
}

// Validate refuses an event that breaks the form of its kind, naming kind, field
// and rule. It knows no world: Header.Admits does.
func (e *Event) Validate() error {
	f := forms()[e.Kind]
	if f == nil {
		return fmt.Errorf("event of kind %q, which schema %s does not have", e.Kind, Schema)
	}
	var set uint32
	for i := range fields {
		if fields[i].set(e) {
			set |= 1 << i
		}
	}
	for i := range fields {
		switch bit := uint32(1) << i; {
		case set&^f.may&bit != 0:
			return e.wrong(fields[i].name, "an event of this kind has none")
		case f.needs&^set&bit != 0:
			return e.wrong(fields[i].name, "missing, or zero")
		}
	}
	if e.What != "" && f.what != nil && !slices.Contains(f.what, e.What) {
		return e.wrong("what", "%q: known are %s", e.What, strings.Join(f.what, ", "))
	}
	if e.Op != "" && !slices.Contains(f.Op, e.Op) {
		return e.wrong("op", "%q: known are %s", e.Op, strings.Join(f.Op, ", "))
	}
	if e.Step < f.First {
		return e.wrong("step", "%d: must be at least %d", e.Step, f.First)
	}
	if err := e.numbers(); err != nil {
		return err
	}
	return e.lists()
}

// wrong is the error about a field.
func (e *Event) wrong(field, format string, args ...any) error {
	return fmt.Errorf("%s event: %s: %s", e.Kind, field, fmt.Sprintf(format, args...))
}

// numbers checks the ranges of single numbers.
func (e *Event) numbers() error {
	for _, n := range [...]struct {
		name  string
		value int64
	}{
		{"rank", int64(e.Rank)}, {"worker", int64(e.Worker)}, {"micro", int64(e.Micro)}, {"peer", int64(e.Peer)}, {"lo", e.Lo}, {"hi", e.Hi},
		{"count", e.Count}, {"bytes", e.Bytes}, {"index", e.Index},
	} {
		if n.value < 0 {
			return e.wrong(n.name, "%d: must not be negative", n.value)
		}
	}
	if e.Moved < -1 {
		return e.wrong("moved", "%d: must be at least -1, which is not counted", e.Moved)
	}
	if e.Squares < 0 {
		return e.wrong("squares", "%v: a sum of squares must not be negative", float64(e.Squares))
	}
	// Of a message they are rows and columns.
	if e.Lo > e.Hi && e.Kind != KindMessage {
		return e.wrong("lo", "%d: beyond hi, which is %d", e.Lo, e.Hi)
	}
	if s := e.Span; s != nil && s.Lo > s.Hi {
		return e.wrong("span", "from %d to %d: ends before it begins", s.Lo, s.Hi)
	}
	if d := e.Digest; d != nil && (e.Kind == KindDigest || e.Kind == KindChanged) && d.NonFinite > uint64(e.Count) {
		return e.wrong("digest", "%d elements are not finite of %d (count)", d.NonFinite, e.Count)
	}
	return nil
}

// lists checks the fields that hold several values.
func (e *Event) lists() error {
	switch e.Group {
	case "", names.DP, names.PP, names.TP, names.KV, names.World:
	default:
		return e.wrong("group", "%q: known are %s, %s, %s, %s, %s", e.Group, names.DP, names.PP, names.TP, names.KV, names.World)
	}
	if err := e.elements(); err != nil {
		return err
	}
	for _, id := range e.IDs {
		if id < -1 {
			return e.wrong("ids", "%d: must be at least -1, which is padding", id)
		}
	}
	if e.Kind == KindDiff && len(e.Ranks) != 2 {
		return e.wrong("ranks", "%v: must be two", e.Ranks)
	}
	if r, bad := repeated(e.Ranks); bad {
		return e.wrong("ranks", "%d: negative, or there twice", r)
	}
	return e.ranges()
}

// elements checks how many elements Data has: Count of them, of a tap whole rows.
func (e *Event) elements() error {
	n, columns := int64(len(e.Data)), e.Hi-e.Lo
	switch {
	case n == 0:
	case e.Kind != KindTap && n != e.Count:
		return e.wrong("data", "%d elements: count is %d", n, e.Count)
	case e.Kind == KindTap && (columns == 0 || n%columns != 0):
		return e.wrong("data", "%d elements: not rows of %d columns", n, columns)
	}
	return nil
}

// repeated finds a rank that is negative or there twice.
func repeated(ranks []int) (rank int, ok bool) {
	if !slices.IsSorted(ranks) {
		ranks = slices.Sorted(slices.Values(ranks))
	}
	for i, r := range ranks {
		if r < 0 || i > 0 && r == ranks[i-1] {
			return r, true
		}
	}
	return 0, false
}

// ranges checks that the ranges ascend, do not overlap, and have Count elements.
func (e *Event) ranges() error {
	var end, sum int64
	for _, r := range e.Ranges {
		if r[0] < 0 || r[0] >= r[1] || r[0] < end {
			return e.wrong("ranges", "%v: must ascend without overlap, each with an element", r)
		}
		end, sum = r[1], sum+r[1]-r[0]
	}
	if len(e.Ranges) > 0 && sum != e.Count {
		return e.wrong("ranges", "%d elements: count is %d", sum, e.Count)
	}
	return nil
}

// maxWorld bounds the ranks of a run that is read.
const maxWorld = 1 << 20

// Validate refuses a header that does not fit the format, naming value and rule.
func (h *Header) Validate() error {
	switch {
	case h.Schema != Schema:
		return fmt.Errorf("schema %q: want %q", h.Schema, Schema)
	case h.Arithmetic != 0 && h.Arithmetic != kernels.Arithmetic:
		return fmt.Errorf("canonical arithmetic version %d: this program has version %d, and bits of different versions are never compared", h.Arithmetic, kernels.Arithmetic)
	case h.World < 1 || h.World > maxWorld:
		return fmt.Errorf("world of %d ranks: want 1 to %d", h.World, maxWorld)
	case h.Rank < 0 || h.Rank >= h.World:
		return fmt.Errorf("history of rank %d: the world has %d ranks", h.Rank, h.World)
	case h.Process < 0:
		return fmt.Errorf("process %d: must not be negative", h.Process)
	case h.Spec.IsZero():
		return nil
	}
	return h.Spec.Validate()
}

// Admits refuses an event that is not valid, or not of a rank's history with this
// header: of another rank, or about ranks outside the world.
func (h *Header) Admits(e *Event) error {
	if e.Rank != h.Rank {
		return fmt.Errorf("event of rank %d in the history of rank %d", e.Rank, h.Rank)
	}
	if err := e.Validate(); err != nil {
		return err
	}
	for _, r := range e.Ranks {
		if r >= h.World {
			return e.wrong("ranks", "%d: the world has %d ranks", r, h.World)
		}
	}
	if e.Peer >= h.World {
		return e.wrong("peer", "%d: the world has %d ranks", e.Peer, h.World)
	}
	return nil
}
