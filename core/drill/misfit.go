package drill

import (
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Misfit is one operation of every rank of a world, which do not fit: a
// communicator must refuse them on every rank by an error that says so.
type Misfit struct {
	Name  string   // what does not fit: "bounds of all-gather"
	Calls []Record // by rank: the operation that it calls
}

// misfitCount is the length of the vectors, from which no group's sizes in a plan
// differ by one.
const misfitCount = 24

// misfits collects the misfits of a world.
type misfits struct {
	size int
	all  []Misfit
}

// Misfits lists what ranks can disagree on in a world of at least two: operation,
// element type, reduction, length, bounds, root and, of messages, length, direction
// and peer. The rank that is alone with its call is another one each time.
func Misfits(size int) []Misfit {
	m := &misfits{size: size}
	m.operations()
	m.arguments()
	m.bounds()
	m.messages()
	return m.all
}

// call is an operation of misfitCount elements.
func (m *misfits) call(op string) Record {
	world := make([]int, m.size)
	for r := range world {
		world[r] = r
	}
	return Record{Op: op, Group: world, Peer: -1, Reduction: kernels.Sum.String(), Count: misfitCount, Input: Integer, InPlace: op == names.OpAllReduce}
}

// add lets one rank call odd and the others most.
func (m *misfits) add(name string, most, odd Record) {
	alone := len(m.all) % m.size
	calls := make([]Record, m.size)
	for r := range calls {
		calls[r] = most
		if r == alone {
			calls[r] = odd
		}
	}
	m.each(name, calls)
}

// each lets every rank call its own.
func (m *misfits) each(name string, calls []Record) {
	for r := range calls {
		calls[r].Rank = r
	}
	m.all = append(m.all, Misfit{name, calls})
}

// operations are other operations of the same length.
func (m *misfits) operations() {
	for _, op := range [][2]string{
		{names.OpBarrier, names.OpAllReduce},
		{names.OpAllReduce, names.OpReduceScatter},
		{names.OpAllReduce, names.OpAllReduceInt},
		{names.OpReduceScatter, names.OpAllGather},
		{names.OpAllGatherBytes, names.OpBarrier},
		{names.OpBarrier, names.OpSplit},
	} {
		m.add("operation: "+op[1]+" among "+op[0], m.call(op[0]), m.call(op[1]))
	}
	broadcast := m.call(names.OpBroadcast)
	broadcast.Peer = 0
	m.add("operation: "+names.OpBroadcast+" among "+names.OpAllReduce, m.call(names.OpAllReduce), broadcast)
}

// arguments are reductions, lengths and roots.
func (m *misfits) arguments() {
	for _, op := range []string{names.OpAllReduce, names.OpReduceScatter, names.OpAllReduceInt} {
		odd := m.call(op)
		odd.Reduction = kernels.Max.String()
		m.add("reduction of "+op, m.call(op), odd)
	}
	for _, op := range []string{names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast, names.OpAllReduceInt} {
		for _, n := range []struct {
			name  string
			count int
		}{{"longer", misfitCount + 1}, {"shorter", misfitCount - 1}, {"empty", 0}} {
			most := m.call(op)
			if op == names.OpBroadcast {
				most.Peer = 0
			}
			odd := most
			odd.Count = n.count
			m.add("length of "+op+": "+n.name, most, odd)
		}
	}
	first, last := m.call(names.OpBroadcast), m.call(names.OpBroadcast)
	first.Peer, last.Peer = 0, m.size-1
	m.add("root of "+names.OpBroadcast, first, last)
}

// bounds are parts that lie elsewhere, of vectors of one length.
func (m *misfits) bounds() {
	for _, op := range []string{names.OpReduceScatter, names.OpAllGather} {
		odd := m.call(op)
		odd.Bounds = lopsided(misfitCount, m.size)
		m.add("bounds of "+op, m.call(op), odd)
		if m.size < 3 {
			continue
		}
		// Rank 0's own part is where its peers have it: the boundary between the last
		// two is not, of those that have elements.
		calls := make([]Record, m.size)
		for r := range calls {
			calls[r] = m.call(op)
			calls[r].Bounds = shard.Bounds(misfitCount, m.size)
		}
		moved, last := calls[0].Bounds, m.size-1
		for moved[last] == misfitCount {
			last--
		}
		moved[last]++
		m.each("bounds of "+op+" between others", calls)
	}
}

// messages are the two sides of one, beside which other ranks wait at a barrier.
func (m *misfits) messages() {
	first, last := 0, m.size-1
	for _, s := range []struct {
		name             string
		from, to         int
		fromOp, toOp     string
		fromMore, toMore int
	}{
		{"length of a message: longer", first, last, names.OpSend, names.OpRecv, 1, 0},
		{"length of a message: shorter", last, first, names.OpSend, names.OpRecv, 0, 1},
		{"length of a message: one is empty", first, last, names.OpSend, names.OpRecv, 0, -misfitCount},
		{"direction of a message: both send", first, last, names.OpSend, names.OpSend, 0, 0},
		{"direction of a message: both receive", first, last, names.OpRecv, names.OpRecv, 0, 0},
		{"operation: a barrier for a receive", first, last, names.OpSend, names.OpBarrier, 0, 0},
		{"operation: a barrier for a send", last, first, names.OpBarrier, names.OpRecv, 0, 0},
	} {
		calls := m.barriers()
		calls[s.from] = m.message(s.fromOp, s.to, s.fromMore)
		calls[s.to] = m.message(s.toOp, s.from, s.toMore)
		m.each(s.name, calls)
	}
	if m.size < 3 {
		return
	}
	calls := m.barriers()
	calls[0], calls[1] = m.message(names.OpSend, 1, 0), m.message(names.OpRecv, 2, 0)
	m.each("peer of a receive", calls)
	calls = m.barriers()
	calls[0], calls[1], calls[2] = m.message(names.OpSend, 2, 0), m.message(names.OpRecv, 0, 0), m.message(names.OpRecv, 1, 0)
	m.each("peer of a send", calls)
}

// barriers lets every rank wait for all.
func (m *misfits) barriers() []Record {
	calls := make([]Record, m.size)
	for r := range calls {
		calls[r] = m.call(names.OpBarrier)
	}
	return calls
}

// message is a send or receive with a peer, so many elements longer than others; a
// barrier stays one.
func (m *misfits) message(op string, peer, more int) Record {
	r := m.call(op)
	r.InPlace = true
	if op != names.OpBarrier {
		r.Peer = peer
		r.Count += more
	}
	return r
}
