package simulator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-ml/lockstep/core/schedule"
)

func must(t *testing.T) func(schedule.Schedule, error) schedule.Schedule {
	return func(s schedule.Schedule, err error) schedule.Schedule {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// all gives f every schedule of at most 8 stages, 16 micro-batches, 4 chunks.
func all(t *testing.T, f func(name string, s schedule.Schedule)) {
	for p := 1; p <= 8; p++ {
		for m := 1; m <= 16; m++ {
			name := fmt.Sprintf("P=%d M=%d", p, m)
			f("1f1b "+name, must(t)(schedule.OneF1B(p, m)))
			f("gpipe "+name, must(t)(schedule.GPipe(p, m)))
			for v := 1; v <= 4; v++ {
				f(fmt.Sprintf("interleaved %s V=%d", name, v), must(t)(schedule.Interleaved(p, v, m)))
			}
		}
	}
}

func equal(f, b int64) Costs {
	return Costs{Forward: func(int, int) int64 { return f }, Backward: func(int, int) int64 { return b }}
}

// Every schedule is complete, cannot deadlock whatever the buffers, and costs
// what the formulas say, whatever the ratio of backward to forward.
func TestEverySchedule(t *testing.T) {
	all(t, func(name string, s schedule.Schedule) {
		if err := Check(s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range [][2]int64{{1, 1}, {2, 5}, {3, 1}} {
			for buffer := range 3 {
				r, err := Run(s, equal(c[0], c[1]), buffer)
				if err != nil {
					t.Fatalf("%s, buffer %d: %v", name, buffer, err)
				}
				checkResult(t, fmt.Sprintf("%s, buffer %d, costs %v", name, buffer, c), s, r, c[0]+c[1])
			}
		}
	})
}

// checkResult compares r with the formulas; round is the time of a forward and
// a backward pass.
func checkResult(t *testing.T, name string, s schedule.Schedule, r Result, round int64) {
	t.Helper()
	p, v, m := len(s.Stages), s.Chunks, s.Micros
	least := int64(v*m+p-1) * round
	most := least
	if v > 1 {
		most = int64(v*((m+p-1)/p*p)+p-1) * round
	}
	if r.Finish < least || r.Finish > most {
		t.Errorf("%s: ends at %d, want %d to %d", name, r.Finish, least, most)
	}
	f := s.Figures()
	if f.Exact && math.Abs(r.IdleShare()-f.IdleShare) > 1e-12 {
		t.Errorf("%s: idle share %v, formula %v", name, r.IdleShare(), f.IdleShare)
	}
	unsent := 1
	if v > 1 {
		unsent = 2
	}
	for i := range p {
		if r.Busy[i] != int64(v*m)*round {
			t.Errorf("%s: stage %d is busy for %d, want %d", name, i, r.Busy[i], int64(v*m)*round)
		}
		if r.PeakLive[i] > f.PeakLive[i] || f.Exact && r.PeakLive[i] != f.PeakLive[i] {
			t.Errorf("%s: stage %d holds %d live micro-batches, formula %d", name, i, r.PeakLive[i], f.PeakLive[i])
		}
		if r.PeakUnsent[i] > unsent {
			t.Errorf("%s: stage %d holds %d unsent results, at most %d expected", name, i, r.PeakUnsent[i], unsent)
		}
	}
}

// The transfers of a slot take two rounds (three round an odd ring) and do not
// queue up down the pipeline.
func TestTransfersKeepStep(t *testing.T) {
	const transfer = 4
	all(t, func(name string, s schedule.Schedule) {
		p, v, m := len(s.Stages), s.Chunks, s.Micros
		c, rounds := equal(1, 2), 2
		c.Transfer = transfer
		if v > 1 {
			m, rounds = (m+p-1)/p*p, 2+p%2
		}
		r, err := Run(s, c, Rendezvous)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if most := int64(v*m+p-1) * int64(3+2*rounds*transfer); r.Finish > most {
			t.Errorf("%s: ends at %d, want %d at most", name, r.Finish, most)
		}
	})
}

// The idle shares that were simulated independently of this package.
func TestIdleShareVectors(t *testing.T) {
	for _, x := range []struct {
		p, m int
		idle float64
	}{{2, 4, .2}, {4, 8, .2727}, {2, 16, .0588}, {4, 4, .4286}, {4, 2, .6}, {8, 32, .1795}} {
		s := must(t)(schedule.OneF1B(x.p, x.m))
		r, err := Run(s, Costs{}, Rendezvous)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(r.IdleShare()-x.idle) > 5e-5 {
			t.Errorf("P=%d M=%d: idle share %.4f, want %.4f", x.p, x.m, r.IdleShare(), x.idle)
		}
	}
	for _, x := range []struct {
		p, m     int
		overhead float64
	}{{2, 4, .25}, {4, 8, .375}, {2, 16, .0625}} {
		if got := schedule.Overhead(x.p, 1, x.m); got != x.overhead {
			t.Errorf("P=%d M=%d: overhead %v, want %v", x.p, x.m, got, x.overhead)
		}
	}
	if got := must(t)(schedule.OneF1B(4, 8)).Figures().PeakLive; !slices.Equal(got, []int{4, 3, 2, 1}) {
		t.Errorf("P=4 M=8: live %v, want 4 3 2 1", got)
	}
}

// pass is a forward or backward pass; passes drops a stage's transfers.
type pass struct {
	Kind         schedule.Kind
	Micro, Chunk int
}

func passes(list []schedule.Action) []pass {
	var out []pass
	for _, a := range list {
		if a.Kind.IsPass() {
			out = append(out, pass{a.Kind, a.Micro, a.Chunk})
		}
	}
	return out
}

// The order of passes is that of the loops of Megatron-LM: warm-up, steady
// state, cool-down.
func TestPassOrder(t *testing.T) {
	all(t, func(name string, s schedule.Schedule) {
		p, v, m := len(s.Stages), s.Chunks, s.Micros
		if s.Name == schedule.NameInterleaved && v > 1 && m%p != 0 {
			return // not defined there
		}
		n := v * m
		at := func(i int, k schedule.Kind) pass {
			chunk := i % (p * v) / p
			if k == schedule.Backward {
				chunk = v - 1 - chunk
			}
			if v == 1 {
				return pass{k, i, 0}
			}
			return pass{k, i/(p*v)*p + i%p, chunk}
		}
		for stage, list := range s.Stages {
			warmup := map[string]int{schedule.NameOneF1B: p - stage - 1, schedule.NameGPipe: m, schedule.NameInterleaved: 2*(p-stage-1) + (v-1)*p}[s.Name]
			if v == 1 && s.Name == schedule.NameInterleaved {
				warmup = p - stage - 1
			}
			warmup = min(warmup, n)
			var want []pass
			for i := range warmup {
				want = append(want, at(i, schedule.Forward))
			}
			for i := warmup; i < n; i++ {
				want = append(want, at(i, schedule.Forward), at(i-warmup, schedule.Backward))
			}
			for i := n - warmup; i < n; i++ {
				want = append(want, at(i, schedule.Backward))
			}
			if diff := cmp.Diff(want, passes(list)); diff != "" {
				t.Fatalf("%s, stage %d (-want +got):\n%s", name, stage, diff)
			}
		}
	})
}

// Goroutines with unbuffered channels, one for each ordered pair of stages, run
// every schedule to its end and receive what was meant for them.
func TestBlockingStages(t *testing.T) {
	for p := 1; p <= 5; p++ {
		for m := 1; m <= 7; m += 2 {
			for v := 1; v <= 3; v++ {
				runBlocking(t, must(t)(schedule.Interleaved(p, v, m)))
			}
			runBlocking(t, must(t)(schedule.GPipe(p, m)))
		}
	}
}

func runBlocking(t *testing.T, s schedule.Schedule) {
	p := len(s.Stages)
	links := make([]chan schedule.Action, p*p)
	for i := range links {
		links[i] = make(chan schedule.Action)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for stage, list := range s.Stages {
		group.Go(func() {
			for i, a := range list {
				if a.Kind.IsPass() {
					continue
				}
				var ok bool
				if a.Kind.IsSend() {
					select {
					case links[stage*p+a.Peer] <- a:
						ok = true
					case <-ctx.Done():
					}
				} else {
					select {
					case got := <-links[a.Peer*p+stage]:
						ok = got == opposite(stage, a, p)
					case <-ctx.Done():
					}
				}
				if !ok {
					t.Errorf("%s P=%d V=%d M=%d: stage %d fails in action %d, %v", s.Name, p, s.Chunks, s.Micros, stage, i, a)
					cancel()
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow() // each deadlock costs the whole deadline
	}
}

func TestSizes(t *testing.T) {
	for _, x := range [][3]int{{0, 1, 1}, {-1, 1, 1}, {1, 0, 1}, {1, 1, 0}, {1 << 13, 1 << 6, 1 << 6}, {math.MaxInt, 2, math.MaxInt}, {schedule.MaxPasses, schedule.MaxPasses, schedule.MaxPasses}} {
		if _, err := schedule.Interleaved(x[0], x[1], x[2]); err == nil || !strings.Contains(err.Error(), "interleaved: ") {
			t.Errorf("Interleaved%v: error %v", x, err)
		}
	}
	if _, err := schedule.OneF1B(0, 3); err == nil || err.Error() != "1f1b: 0 stages: must be from 1 to 16777216" {
		t.Errorf("OneF1B(0, 3): error %v", err)
	}
	if _, err := schedule.GPipe(3, 0); err == nil || err.Error() != "gpipe: 0 micro-batches: must be from 1 to 16777216" {
		t.Errorf("GPipe(3, 0): error %v", err)
	}
}

// A schedule of 512 stages is made, checked and simulated as a matter of course.
func TestManyStages(t *testing.T) {
	s := must(t)(schedule.OneF1B(512, 32))
	if err := Check(s); err != nil {
		t.Fatal(err)
	}
	r, err := Run(s, equal(1, 2), Rendezvous)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, "512 stages", s, r, 3)
}

func BenchmarkOneF1B512(b *testing.B) {
	for b.Loop() {
		s, err := schedule.OneF1B(512, 64)
		if err == nil {
			_, err = Run(s, Costs{}, Rendezvous)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
