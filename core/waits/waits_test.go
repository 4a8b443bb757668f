package waits_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/waits"
)

// meeting is a collective of ranks.
func meeting(name string, group names.Axis, seq uint64, step int, ranks ...int) *waits.Meeting {
	return &waits.Meeting{Name: name, Group: group, Ranks: ranks, Seq: seq, Step: step, From: -1, To: -1}
}

// in is a rank that waits in meetings for those in lacks.
func in(id int, m *waits.Meeting, lacks ...int) waits.Rank {
	return waits.Rank{ID: id, Waits: []waits.Wait{{Meeting: m, For: lacks}}}
}

// message is one from rank to rank, as the receiver waits for it.
func message(from, to, step int) *waits.Meeting {
	return &waits.Meeting{Name: "recv of activation", Group: names.PP, Ranks: []int{from, to}, Seq: 2, From: from, To: to, Step: step}
}

func TestWhoDidNotComeIsNamed(t *testing.T) {
	norm := meeting("all-reduce-int of norm", names.World, 12, 1, 0, 1, 2, 3)
	agree := meeting("all-gather-bytes of agree", names.DP, 5, 1, 0, 1, 2, 3)
	later := meeting("all-reduce-int of tokens", names.DP, 6, 2, 0, 1)
	pair := meeting("all-reduce-int of norm", names.World, 3, 1, 0, 1)
	unit := meeting("all-reduce of block.1", names.DP, 7, 0, 0, 1, 2)
	unit.Beside = true
	loss := meeting("all-reduce of loss", names.DP, 2, 0, 0, 1, 2)
	queue := waits.Wait{}
	beside := func(id int, lacks ...int) waits.Rank {
		return waits.Rank{ID: id, Waits: []waits.Wait{queue, {Meeting: unit, For: lacks, Queue: true}}}
	}
	send := message(4, 6, 0)
	send.Name = "send of activation"
	for name, c := range map[string]struct {
		ranks  []waits.Rank
		absent []int // nil where nobody is to blame
		says   []string
	}{
		"one leaves an operation out": {
			[]waits.Rank{in(0, norm, 2), in(1, norm, 2), in(2, agree, 0, 1, 3), in(3, norm, 2)}, []int{2},
			[]string{"rank 2 did not come to all-reduce-int of norm (group world of ranks 0, 1, 2, 3; operation 12, step 1), in which ranks 0, 1, 3 wait; " +
				"rank 2 waits in all-gather-bytes of agree (group dp of ranks 0, 1, 2, 3; operation 5, step 1) for ranks 0, 1, 3"},
		},
		"of two, one is a step ahead": {
			[]waits.Rank{in(0, pair, 1), in(1, later, 0)}, []int{1}, []string{"rank 1 did not come to all-reduce-int of norm"},
		},
		"of two in one step either may be wrong": {
			[]waits.Rank{in(0, pair, 1), in(1, meeting("all-gather-bytes of agree", names.DP, 5, 1, 0, 1), 0)}, nil,
			[]string{"rank 1 did not come to all-reduce-int of norm", "rank 0 did not come to all-gather-bytes of agree"},
		},
		"one keeps its reductions until later": {
			[]waits.Rank{beside(0, 1), in(1, loss, 0, 2), beside(2, 1)}, []int{1},
			[]string{"rank 1 did not come to all-reduce of block.1 (group dp of ranks 0, 1, 2; operation 7, step 0; beside the computation), in which ranks 0, 2 wait with their queues; rank 1 waits in all-reduce of loss"},
		},
		"one has ended": {
			[]waits.Rank{in(0, pair, 1), {ID: 1, Ended: true}}, []int{1}, []string{"rank 1 has ended"},
		},
		"a message to one that sends": {
			[]waits.Rank{in(4, send, 6), {ID: 6, Ended: true}}, []int{6},
			[]string{"rank 6 did not come to send of activation (group pp of ranks 4, 6; message 2 from rank 4 to rank 6, step 0), in which rank 4 waits"},
		},
		"a message that is not sent": {
			[]waits.Rank{in(4, norm, 6), in(5, norm, 6), in(6, message(4, 6, 1), 4)}, []int{4},
			[]string{"rank 4 did not come to recv of activation", "in which rank 6 waits; rank 4 waits in all-reduce-int of norm"},
		},
		"a queue that has nothing to do": {
			[]waits.Rank{{ID: 0, Waits: []waits.Wait{queue}}}, nil, []string{"rank 0 waits for its own queue, which has nothing to do"},
		},
		"others go on": {
			[]waits.Rank{in(0, pair, 1), in(1, later, 0), {ID: 2, Busy: true}}, []int{1}, []string{"rank 1 did not come"},
		},
	} {
		d := waits.Find(c.ranks)
		if d == nil {
			t.Errorf("%s: not found", name)
			continue
		}
		if !slices.Equal(d.Absent(), c.absent) {
			t.Errorf("%s: absent %v, want %v", name, d.Absent(), c.absent)
		}
		for _, s := range c.says {
			if !strings.Contains(d.String(), s) {
				t.Errorf("%s: %q\nlacks %q", name, d, s)
			}
		}
	}
}

func TestWhoMayGoOnIsNoDeadlock(t *testing.T) {
	norm := meeting("all-reduce-int of norm", names.World, 0, 0, 0, 1, 2)
	pair := meeting("all-reduce of x", names.TP, 0, 0, 0, 1)
	for name, ranks := range map[string][]waits.Rank{
		"one computes":              {in(0, norm, 2), in(1, norm, 2), {ID: 2, Busy: true}},
		"one is unknown":            {in(0, norm, 2), in(1, norm, 2)},
		"one says nothing":          {in(0, norm, 2), in(1, norm, 2), {ID: 2}},
		"through another":           {in(0, pair, 1), in(1, norm, 2), {ID: 2, Busy: true}},
		"its queue goes on":         {in(0, pair, 1), {ID: 1, Waits: []waits.Wait{{}}, Busy: true}},
		"its queue will go on":      {in(0, pair, 1), {ID: 1, Waits: []waits.Wait{{}, {Meeting: norm, For: []int{2}, Queue: true}}}, {ID: 2, Busy: true}},
		"all have ended":            {{ID: 0, Ended: true}, {ID: 1, Ended: true}},
		"nobody is there":           nil,
		"all came, none was told":   {in(0, pair), in(1, pair)},
		"who waits for is not sane": {in(0, pair, -1)},
	} {
		if d := waits.Find(ranks); d != nil {
			t.Errorf("%s: found %s", name, d)
		}
	}
}

func TestMessageIsBounded(t *testing.T) {
	const n = 5000
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	m := meeting("barrier", names.World, 1, 0, all...)
	ranks := []waits.Rank{in(0, m, all[1:]...)}
	for i := 1; i < n; i++ {
		ranks = append(ranks, in(i, meeting(fmt.Sprint("op ", i), names.World, uint64(i+1), 0, all...), 0))
	}
	if s := waits.Find(ranks).String(); len(s) > 8000 || !strings.Contains(s, "and 4992 more;") || !strings.Contains(s, "more operations wait") {
		t.Errorf("%d bytes: %.600s", len(s), s)
	}
}
