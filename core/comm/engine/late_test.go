//go:build unix

package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/names"
)

// Whoever waits is not to blame where somebody does not; where all wait, the one that
// most do not hear is.
func TestBlame(t *testing.T) {
	at := func(rank int, group, seq uint64, misses ...int) silence {
		return silence{&standInGroup{Group: group, Ranks: []int{0, 1, 2, 3}, Misses: misses,
			Call: (&protocol.Call{Op: names.OpBarrier, Peer: -1, Seq: seq}).Say()}, rank}
	}
	said := protocol.Failure{Peer: 0, Err: protocol.ErrDeadline}
	for name, x := range map[string]struct {
		all  []silence
		peer int
		says string
	}{
		"nobody has said what it waits for":   {nil, 0, "deadline expired"},
		"one has not come":                    {[]silence{at(0, 0, 5, 1), at(2, 0, 5, 1), at(3, 0, 5, 1)}, 1, "rank 1 did not come to barrier within 1s"},
		"two have not":                        {[]silence{at(0, 0, 5, 1, 3), at(2, 0, 5, 1, 3)}, 1, "ranks 1, 3 did not come"},
		"one waits for one that waits":        {[]silence{at(3, 0, 5, 2), at(2, 7, 1, 1), at(0, 0, 5, 2)}, 1, "rank 1 did not come"},
		"one waits for both":                  {[]silence{at(1, 0, 6, 0, 2), at(0, 0, 5, 2)}, 2, "rank 2 did not come"},
		"two wait for each other and a third": {[]silence{at(0, 0, 5, 1, 2), at(1, 0, 5, 0, 2)}, 2, "rank 2 did not come"},
		"what one sends and gets is lost":     {[]silence{at(0, 0, 5, 2), at(1, 0, 5, 2), at(2, 0, 5, 0, 1)}, 2, "rank 2 did not come"},
		"the same, and one is ahead":          {[]silence{at(1, 0, 6, 0, 2), at(0, 0, 5, 2), at(2, 0, 5, 0, 3), at(3, 0, 5, 2)}, 2, "rank 2 did not come"},
		"one link loses all":                  {[]silence{at(1, 0, 6, 0, 2), at(0, 0, 5, 2), at(2, 0, 5, 0)}, -1, "rank 0 and rank 2 do not hear each other in barrier within 1s"},
		"one waits for an impossible one":     {[]silence{at(0, 0, 6, 1), at(1, 0, 6, 0), at(2, 0, 6, 0), at(3, 0, 5, 0)}, 0, "rank 0 did not come"},
	} {
		if f := blame(x.all, said, time.Second); f.Peer != x.peer || !errors.Is(f.Err, protocol.ErrDeadline) || !strings.Contains(f.Err.Error(), x.says) {
			t.Errorf("%s: rank %d, %v, want rank %d, %s", name, f.Peer, f.Err, x.peer, x.says)
		}
	}
}

// Those are missing that are furthest behind; where nothing is to come, those that do
// not take what they are sent.
func TestMissing(t *testing.T) {
	x := func(came, sent [3]int) *exchange {
		x := &exchange{e: &end{ranks: []int{10, 11, 12, 13}}, lanes: make([]lane, 4)}
		for i := range came {
			x.lanes[i+1] = lane{in: make([]expecting, 3), out: make([]sending, 2), came: came[i], sent: sent[i]}
		}
		return x
	}
	for _, c := range []struct {
		came, sent [3]int
		want       []int
	}{
		{[3]int{2, 1, 3}, [3]int{2, 2, 0}, []int{12}},
		{[3]int{1, 2, 0}, [3]int{2, 2, 2}, []int{13}},
		{[3]int{1, 2, 1}, [3]int{0, 0, 0}, []int{11, 13}},
		{[3]int{3, 3, 3}, [3]int{2, 1, 0}, []int{12, 13}},
		{[3]int{3, 3, 3}, [3]int{2, 2, 2}, []int{10, 11, 12, 13}},
	} {
		if got := x(c.came, c.sent).missing(); !slices.Equal(got, c.want) {
			t.Errorf("%v have come, %v are sent: %v are missing, want %v", c.came, c.sent, got, c.want)
		}
	}
}

// Ranks that wait for each other are asked again whether they still do: one that has gone
// on since, however far, makes it another question.
func TestAskedAgain(t *testing.T) {
	h := newHub(&Config{Size: 2})
	stood := func(rank int, moves, check uint64) {
		h.stood(rank, &stand{Moves: moves, Check: check, Groups: []standInGroup{{Ranks: []int{0, 1},
			Call: (&protocol.Call{Op: names.OpRecv, Count: 1, Peer: 1 - rank}).Say()}}})
	}
	stood(0, 5, 0)
	stood(1, 7, 0)
	for asked := uint64(1); asked < 4; asked++ {
		if h.asked != asked || h.stands.check != asked {
			t.Fatalf("question %d is in the air, and %d were asked, want %d", h.stands.check, h.asked, asked)
		}
		stood(0, 5, asked)
		stood(1, 7+asked, asked)
	}
}

// Who has left has taken, sent and done what it says, and nothing after that.
func TestWithout(t *testing.T) {
	n := &node{left: map[uint64]parting{3: {12: &departure{Collectives: 3, Sent: map[int]uint64{11: 2}, Received: map[int]uint64{11: 1}}}}}
	e := &end{n: n, id: 3, ranks: []int{11, 12}}
	for op, done := range map[string]uint64{names.OpSend: 1, names.OpRecv: 2, names.OpAllReduce: 3, names.OpBarrier: 3} {
		for seq := range uint64(6) {
			if got, want := e.without(&protocol.Call{Op: op}, 1, seq), seq >= done; got != want {
				t.Errorf("%s %d of a peer that has left after %d: without it %t", op, seq, done, got)
			}
		}
	}
	if e.without(&protocol.Call{Op: names.OpSend}, 0, 9) {
		t.Error("a rank that is there has left")
	}
}
