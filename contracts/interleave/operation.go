package interleave

import (
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/waits"
)

// group is a set of ranks, the same for the ends of all of them.
type group struct {
	ranks   []int // world ranks
	running map[key]*operation
}

func newGroup(ranks []int) *group { return &group{ranks, map[key]*operation{}} }

// key tells operations of a group apart: its collectives by their number, its
// messages by sender, receiver and number.
type key struct {
	from, to int // -1 of a collective
	number   uint64
}

// operation is one operation that some members of a group are in.
type operation struct {
	key
	group  *group
	name   string
	label  comm.Label
	size   int // members that take part
	in     []visit
	here   int // how many have come
	gone   int
	splits map[int]*group // of a split: the new groups, by their first rank
}

// visit is a member's part in an operation.
type visit struct {
	task         *task // nil until it comes
	came, left   clock // what it had done when it came, and when it left
	begun, ended bool
}

// enter brings the current task into an operation, as a member of the group.
func (g *group) enter(k key, name string, label comm.Label, t *task, member int) *operation {
	o := g.running[k]
	if o == nil {
		o = &operation{key: k, group: g, name: name, label: label, size: len(g.ranks), in: make([]visit, len(g.ranks))}
		if k.from >= 0 {
			o.size = 2
		}
		g.running[k] = o
	}
	o.in[member] = visit{task: t, came: t.release()}
	o.here++
	return o
}

// begin orders the first use of memory in the operation after what all that have
// come did before: an operation begins when all are there.
func (o *operation) begin(t *task) {
	v := &o.in[t.member]
	if v.begun {
		return
	}
	v.begun = true
	for i := range o.in {
		t.acquire(o.in[i].came)
	}
}

// leave takes a member out. An operation ends when all are done with its buffers:
// what they did in it comes before what this one does next.
func (o *operation) leave(t *task, member int) {
	v := &o.in[member]
	for i := range o.in {
		switch m := &o.in[i]; {
		case m.task == nil || m == v:
		case m.ended:
			t.acquire(m.left)
		default:
			t.acquire(m.task.release())
		}
	}
	v.left, v.ended = t.release(), true
	if o.gone++; o.gone == o.size {
		delete(o.group.running, o.key)
	}
}

// what is the operation in words.
func (o *operation) what() string {
	s := o.name
	if o.label.Tensor != "" {
		s += " of " + o.label.Tensor
	}
	if o.label.Overlap {
		s += " (beside the computation)"
	}
	return s
}

// meeting is the operation with its members that have not come. step is that of a
// goroutine in it, for what has no label.
func (o *operation) meeting(step int) (m *waits.Meeting, missing []int) {
	m = &waits.Meeting{Name: o.name, Group: o.label.Group, Beside: o.label.Overlap, Ranks: o.group.ranks, Seq: o.number - 1, Step: step, From: -1, To: -1}
	if o.label.Tensor != "" {
		m.Name, m.Step = o.name+" of "+o.label.Tensor, o.label.Step
	}
	if o.from >= 0 {
		m.From, m.To = o.group.ranks[o.from], o.group.ranks[o.to]
	}
	for i := range o.in {
		if o.takes(i) && o.in[i].task == nil {
			missing = append(missing, o.group.ranks[i])
		}
	}
	return m, missing
}

// takes reports whether a member takes part.
func (o *operation) takes(member int) bool { return o.from < 0 || member == o.from || member == o.to }

// child is the group of a split that has these ranks.
func (o *operation) child(ranks []int) *group {
	if o.splits == nil {
		o.splits = map[int]*group{}
	}
	first := slices.Min(ranks)
	if o.splits[first] == nil {
		o.splits[first] = newGroup(ranks)
	}
	return o.splits[first]
}

// isMessage reports whether an operation has one sender and one receiver.
func isMessage(name string) bool { return name == names.OpSend || name == names.OpRecv }
