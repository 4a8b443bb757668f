package simulator

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-ml/lockstep/core/schedule"
)

// find is the index of an action in a stage's list.
func find(t *testing.T, list []schedule.Action, k schedule.Kind, micro, chunk int) int {
	t.Helper()
	i := slices.IndexFunc(list, func(a schedule.Action) bool { return a.Kind == k && a.Micro == micro && a.Chunk == chunk })
	if i < 0 {
		t.Fatalf("no %v of micro-batch %d, chunk %d", k, micro, chunk)
	}
	return i
}

// mutants break a schedule of 4 stages, 2 chunks and 8 micro-batches.
var mutants = []struct {
	name   string
	mutate func(t *testing.T, s *schedule.Schedule)
	want   string // part of Check's error
}{
	{"missing backward", func(t *testing.T, s *schedule.Schedule) { drop(t, s, 1, schedule.Backward, 7, 0) }, "stage 1, action"},
	{"missing last backward", func(t *testing.T, s *schedule.Schedule) { drop(t, s, 0, schedule.Backward, 7, 0) }, "stage 0 lacks Backward of micro-batch 7, chunk 0"},
	{"missing forward", func(t *testing.T, s *schedule.Schedule) { drop(t, s, 2, schedule.Forward, 3, 1) }, "the pass has not run"},
	{"missing send", func(t *testing.T, s *schedule.Schedule) { drop(t, s, 0, schedule.SendForward, 2, 0) }, "stage 0 lacks SendForward of micro-batch 2, chunk 0"},
	{"missing send of a gradient", func(t *testing.T, s *schedule.Schedule) { drop(t, s, 0, schedule.SendBackward, 2, 1) }, "stage 0 lacks SendBackward of micro-batch 2, chunk 1"},
	{"missing receive", func(t *testing.T, s *schedule.Schedule) { drop(t, s, 0, schedule.RecvForward, 2, 1) }, "nothing was received from stage 3"},
	{"missing receive of a gradient", func(t *testing.T, s *schedule.Schedule) { drop(t, s, 3, schedule.RecvBackward, 2, 0) }, "nothing was received from stage 0"},
	{"forward twice", func(t *testing.T, s *schedule.Schedule) {
		i := find(t, s.Stages[0], schedule.Forward, 3, 0)
		s.Stages[0] = slices.Insert(s.Stages[0], i, s.Stages[0][i])
	}, "done before"},
	{"descending backward", func(t *testing.T, s *schedule.Schedule) {
		swap(t, s, 0, schedule.Backward, 4, 1, schedule.Backward, 5, 1)
	}, "the chunk's next backward pass is of micro-batch 4"},
	{"send before its pass", func(t *testing.T, s *schedule.Schedule) {
		swap(t, s, 0, schedule.Forward, 0, 0, schedule.SendForward, 0, 0)
	}, "the pass has not run"},
	{"backward before forward", func(t *testing.T, s *schedule.Schedule) {
		swap(t, s, 3, schedule.Forward, 0, 1, schedule.Backward, 0, 1)
	}, "its forward pass has not run"},
	{"wrong peer", func(t *testing.T, s *schedule.Schedule) {
		s.Stages[1][find(t, s.Stages[1], schedule.SendForward, 0, 0)].Peer = 3
	}, "its neighbour is stage 2"},
	{"no such stage", func(t *testing.T, s *schedule.Schedule) {
		s.Stages[3][find(t, s.Stages[3], schedule.SendForward, 0, 0)].Peer = 4
	}, "not another one of 4 stages"},
	{"itself", func(t *testing.T, s *schedule.Schedule) {
		s.Stages[3][find(t, s.Stages[3], schedule.SendForward, 0, 0)].Peer = 3
	}, "not another one of 4 stages"},
	{"no such micro-batch", func(t *testing.T, s *schedule.Schedule) { s.Stages[0][0].Micro = 8 }, "not an action of 8 micro-batches and 2 chunks"},
	{"no such kind", func(t *testing.T, s *schedule.Schedule) { s.Stages[0][0].Kind = 0 }, "not an action of 8 micro-batches and 2 chunks"},
	{"input of the model", func(t *testing.T, s *schedule.Schedule) {
		s.Stages[0] = slices.Insert(s.Stages[0], 0, schedule.Action{Kind: schedule.RecvForward, Micro: 0, Chunk: 0, Peer: 3})
	}, "the model ends here"},
	{"sends out of order", func(t *testing.T, s *schedule.Schedule) {
		// Both are computed; the receiver expects them the other way round.
		i, j := find(t, s.Stages[0], schedule.SendForward, 0, 0), find(t, s.Stages[0], schedule.SendForward, 1, 0)
		first := s.Stages[0][i]
		s.Stages[0] = slices.Delete(slices.Insert(s.Stages[0], j+1, first), i, i+1)
	}, "message 0 to stage 1: sends SendForward of micro-batch 1"},
}

func drop(t *testing.T, s *schedule.Schedule, stage int, k schedule.Kind, micro, chunk int) {
	i := find(t, s.Stages[stage], k, micro, chunk)
	s.Stages[stage] = slices.Delete(s.Stages[stage], i, i+1)
}

func swap(t *testing.T, s *schedule.Schedule, stage int, k schedule.Kind, micro, chunk int, k2 schedule.Kind, micro2, chunk2 int) {
	l := s.Stages[stage]
	i, j := find(t, l, k, micro, chunk), find(t, l, k2, micro2, chunk2)
	l[i], l[j] = l[j], l[i]
}

func TestCheckFindsMutants(t *testing.T) {
	for _, x := range mutants {
		s := must(t)(schedule.Interleaved(4, 2, 8))
		x.mutate(t, &s)
		if err := Check(s); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error %v, want %q", x.name, err, x.want)
		}
	}
	s := must(t)(schedule.Interleaved(1, 3, 2)) // chunks on one stage need each other too
	swap(t, &s, 0, schedule.Forward, 0, 1, schedule.Forward, 0, 2)
	if err := Check(s); err == nil || !strings.Contains(err.Error(), "Forward of chunk 1 has not run") {
		t.Errorf("swapped chunks: error %v", err)
	}
}

// In the steady state each stage has to send forward and receive backward. If
// all send first, they wait for each other, unless messages are buffered.
func TestSwappedSendAndReceive(t *testing.T) {
	s := must(t)(schedule.OneF1B(2, 4))
	l := s.Stages[1]
	i := find(t, l, schedule.SendBackward, 0, 0)
	if j := find(t, l, schedule.RecvForward, 1, 0); j != i-1 {
		t.Fatalf("receive in action %d, send in action %d", j, i)
	}
	l[i], l[i-1] = l[i-1], l[i]
	if err := Check(s); err != nil {
		t.Fatal(err)
	}
	_, err := Run(s, Costs{}, Rendezvous)
	var d *Deadlock
	if !errors.As(err, &d) {
		t.Fatalf("error %v", err)
	}
	want := &Deadlock{Cycle: true, Waits: []Wait{
		{0, 3, schedule.Action{Kind: schedule.SendForward, Micro: 1, Chunk: 0, Peer: 1}},
		{1, 3, schedule.Action{Kind: schedule.SendBackward, Micro: 0, Chunk: 0, Peer: 0}},
	}}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	text := "deadlock: stage 0 waits in action 3, SendForward of micro-batch 1, chunk 0 to stage 1; " +
		"stage 1 waits in action 3, SendBackward of micro-batch 0, chunk 0 to stage 0; they wait in a cycle"
	if err.Error() != text {
		t.Errorf("error %q", err)
	}
	if _, err := Run(s, Costs{}, 1); err != nil {
		t.Errorf("one buffer: %v", err)
	}
}

// A stage that waits for a cycle is not part of it.
func TestDeadlockNamesTheCycle(t *testing.T) {
	s := must(t)(schedule.OneF1B(4, 4))
	swap(t, &s, 3, schedule.SendBackward, 0, 0, schedule.RecvForward, 1, 0)
	_, err := Run(s, Costs{}, Rendezvous)
	var d *Deadlock
	if !errors.As(err, &d) || !d.Cycle {
		t.Fatalf("error %v", err)
	}
	var stages []int
	for _, w := range d.Waits {
		stages = append(stages, w.Stage)
	}
	if !slices.Equal(stages, []int{2, 3}) {
		t.Errorf("cycle of stages %v: %v", stages, err)
	}
}

// Receives that are moved to the front are found: of a gradient as a deadlock
// that no buffer cures, of inputs as a deadlock or by the activations held.
func TestFrontLoadedReceive(t *testing.T) {
	s := must(t)(schedule.OneF1B(3, 4))
	front(t, &s, 1, schedule.RecvBackward, 0)
	for buffer := range 3 {
		_, err := Run(s, Costs{}, buffer)
		var d *Deadlock
		if !errors.As(err, &d) || !d.Cycle {
			t.Errorf("gradient first, buffer %d: error %v", buffer, err)
		}
	}
	s = must(t)(schedule.OneF1B(2, 2))
	front(t, &s, 1, schedule.RecvForward, 1)
	front(t, &s, 1, schedule.RecvForward, 0)
	r, err := Run(s, Costs{}, 1)
	if err != nil || r.PeakLive[1] != 2 || s.Figures().PeakLive[1] != 1 {
		t.Errorf("inputs first: live %v, formula %v, error %v", r.PeakLive, s.Figures().PeakLive, err)
	}
}

func front(t *testing.T, s *schedule.Schedule, stage int, k schedule.Kind, micro int) {
	i := find(t, s.Stages[stage], k, micro, 0)
	a := s.Stages[stage][i]
	s.Stages[stage] = slices.Insert(slices.Delete(s.Stages[stage], i, i+1), 0, a)
}

func TestSimulateOtherStops(t *testing.T) {
	s := must(t)(schedule.OneF1B(2, 2))
	drop(t, &s, 0, schedule.SendForward, 1, 0)
	_, err := Run(s, Costs{}, 1)
	var d *Deadlock
	if !errors.As(err, &d) || !d.Cycle || len(d.Waits) != 2 {
		t.Errorf("missing send: error %v", err)
	}
	s = must(t)(schedule.OneF1B(2, 1))
	drop(t, &s, 1, schedule.SendBackward, 0, 0)
	_, err = Run(s, Costs{}, Rendezvous)
	if !errors.As(err, &d) || d.Cycle || d.Ended != 1 || !strings.HasSuffix(err.Error(), "stage 1 has ended") {
		t.Errorf("peer that ended: error %v", err)
	}
	s = must(t)(schedule.GPipe(2, 2))
	s.Stages[0][find(t, s.Stages[0], schedule.SendForward, 0, 0)].Micro = 1
	if _, err := Run(s, Costs{}, Rendezvous); err == nil || !strings.Contains(err.Error(), "meets SendForward of micro-batch 1") {
		t.Errorf("wrong message: error %v", err)
	}
	if _, err := Run(s, Costs{}, -1); err == nil {
		t.Error("negative buffer accepted")
	}
	if _, err := Run(schedule.Schedule{Chunks: 1, Micros: 1}, Costs{}, 0); err == nil {
		t.Error("schedule without stages accepted")
	}
}

// Times that were worked out by hand.
func TestSimulateTimes(t *testing.T) {
	for _, x := range []struct {
		name   string
		s      schedule.Schedule
		c      Costs
		buffer int
		want   Result
	}{
		{"transfers", must(t)(schedule.OneF1B(2, 1)), Costs{Transfer: 3}, Rendezvous,
			Result{Finish: 10, Busy: []int64{2, 2}, PeakLive: []int{1, 1}, PeakUnsent: []int{1, 1}}},
		{"transfers, buffered", must(t)(schedule.OneF1B(2, 1)), Costs{Transfer: 3}, 1,
			Result{Finish: 10, Busy: []int64{2, 2}, PeakLive: []int{1, 1}, PeakUnsent: []int{1, 1}}},
		// Stage 1 takes 4 a pass and is never idle between 1 and 1+16; then
		// stage 0 runs its last backward pass.
		{"slow stage", must(t)(schedule.GPipe(2, 2)), Costs{
			Forward:  func(s, _ int) int64 { return []int64{1, 4}[s] },
			Backward: func(s, _ int) int64 { return []int64{1, 4}[s] }}, Rendezvous,
			Result{Finish: 18, Busy: []int64{4, 16}, PeakLive: []int{2, 2}, PeakUnsent: []int{1, 1}}},
		{"one stage", must(t)(schedule.Interleaved(1, 2, 3)), Costs{}, Rendezvous,
			Result{Finish: 12, Busy: []int64{12}, PeakLive: []int{2}, PeakUnsent: []int{0}}},
	} {
		got, err := Run(x.s, x.c, x.buffer)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
		if diff := cmp.Diff(x.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", x.name, diff)
		}
	}
}

// Too few micro-batches are said so; as many as stages are none too few.
func TestWarnings(t *testing.T) {
	want := []string{"2 micro-batches do not fill 3 stages"}
	if diff := cmp.Diff(want, must(t)(schedule.OneF1B(3, 2)).Warnings()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := must(t)(schedule.OneF1B(3, 3)).Warnings(); got != nil {
		t.Errorf("%q", got)
	}
}
