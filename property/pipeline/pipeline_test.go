package pipeline_test

import (
	"math"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/schedule/simulator"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/property/gen"
)

// drawSchedule draws any schedule: more stages than micro-batches or fewer.
func drawSchedule(t *rapid.T) schedule.Schedule {
	p, m := rapid.IntRange(1, 20).Draw(t, "stages"), rapid.IntRange(1, 40).Draw(t, "micro-batches")
	var s schedule.Schedule
	var err error
	switch rapid.SampledFrom([]string{plan.OneF1B, plan.GPipe, plan.Interleaved}).Draw(t, "schedule") {
	case plan.OneF1B:
		s, err = schedule.OneF1B(p, m)
	case plan.GPipe:
		s, err = schedule.GPipe(p, m)
	default:
		s, err = schedule.Interleaved(p, rapid.IntRange(1, 5).Draw(t, "chunks"), m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drawCosts draws a time for the passes of every stage and chunk, some of them 0.
func drawCosts(t *rapid.T, s schedule.Schedule) simulator.Costs {
	draw := func(name string) func(stage, chunk int) int64 {
		n := len(s.Stages) * s.Chunks
		times := rapid.SliceOfN(rapid.Int64Range(0, 9), n, n).Draw(t, name)
		return func(stage, chunk int) int64 { return times[chunk*len(s.Stages)+stage] }
	}
	return simulator.Costs{Forward: draw("forward"), Backward: draw("backward"), Transfer: rapid.Int64Range(0, 5).Draw(t, "transfer")}
}

var _ = Describe("Pipeline parallelism", Label("C-PIPE-001"), func() {
	It("gives the bits of one worker under every schedule", func() {
		gen.Check("one-answer", func(t *rapid.T) {
			c := gen.Training(t, rapid.IntRange(2, 6))
			text := gen.Text(t, c)
			p := gen.Plan(t, c, gen.Axes{Pipeline: true, Data: rapid.Bool().Draw(t, "data parallel too")})
			control := p.Unsplit(c.Model)
			gen.Same(t, p, gen.Answer(t, c, text, p), control, gen.Answer(t, c, text, control))
		})
	})

	It("delivers at every boundary what was sent, and holds no more activations than its bound", func() {
		gen.Check("boundaries", func(t *rapid.T) {
			c := gen.Training(t, rapid.IntRange(2, 6))
			p := gen.Plan(t, c, gen.Axes{Pipeline: true, Tensor: rapid.Bool().Draw(t, "tensor parallel too")})
			checkBoundaries(t, p, gen.Run(t, c, gen.Text(t, c), p, launch.Parts{}).History)
		})
	})

	It("ends under every schedule, whatever passes and transfers take", func() {
		gen.Check("no-deadlock", func(t *rapid.T) {
			s := drawSchedule(t)
			if err := simulator.Check(s); err != nil {
				t.Fatal(err)
			}
			costs, buffer := drawCosts(t, s), rapid.IntRange(simulator.Rendezvous, 3).Draw(t, "buffer")
			r, err := simulator.Run(s, costs, buffer)
			if err != nil {
				t.Fatal(err)
			}
			for i := range s.Stages {
				var busy int64
				for v := range s.Chunks {
					busy += int64(s.Micros) * (costs.Forward(i, v) + costs.Backward(i, v))
				}
				if r.Busy[i] != busy || r.Finish < busy {
					t.Fatalf("stage %d is busy for %d of %d, its passes take %d", i, r.Busy[i], r.Finish, busy)
				}
			}
		})
	})

	It("idles and holds as the formulas say, where passes take equal times", func() {
		gen.Check("figures", func(t *rapid.T) {
			s := drawSchedule(t)
			r, err := simulator.Run(s, simulator.Costs{}, simulator.Rendezvous)
			if err != nil {
				t.Fatal(err)
			}
			f := s.Figures()
			idle := r.IdleShare()
			// On one stage chunks never wait, and the formula is 0.
			if f.Exact && math.Abs(idle-f.IdleShare) > 1e-12 || idle < f.IdleShare-1e-12 {
				t.Fatalf("idle share %v, formula %v", idle, f.IdleShare)
			}
			for i, n := range r.PeakLive {
				if n > f.PeakLive[i] || f.Exact && n != f.PeakLive[i] {
					t.Fatalf("stage %d holds %d micro-batches, formula %d", i, n, f.PeakLive[i])
				}
			}
		})
	})
})

// checkBoundaries pairs the messages of both sides of each boundary.
func checkBoundaries(t *rapid.T, p plan.Plan, h *trace.History) {
	type key struct {
		step, micro, boundary, tp int
		what                      string
	}
	sides := map[key]map[string]trace.Event{}
	dims := p.Dims()
	live := make([]int64, dims.PP)
	for e := range h.All {
		at := dims.Coord(e.Rank)
		switch e.Kind {
		case trace.KindLive:
			live[at.PP] = max(live[at.PP], e.Count)
		case trace.KindMessage:
			k := key{e.Step, e.Micro, int(e.Seq), at.TP, e.What}
			if sides[k] == nil {
				sides[k] = map[string]trace.Event{}
			}
			sides[k][e.Op] = e
		}
	}
	if want := 2 * p.MicroBatches * (dims.PP*p.Virtual - 1) * 2 * dims.TP; len(sides) != want {
		t.Fatalf("%s: %d messages in two steps, want %d", p, len(sides), want)
	}
	for k, s := range sides {
		sent, received := s[names.OpSend], s[names.OpRecv]
		if sent.Digest == nil || received.Digest == nil || *sent.Digest != *received.Digest || sent.Count != received.Count {
			t.Fatalf("%s: %+v: sent %v, received %v", p, k, digest(sent), digest(received))
		}
	}
	if dims.PP == 1 {
		return
	}
	s, err := schedule.Named(p.Schedule, p.PP, p.Virtual, p.MicroBatches)
	if err != nil {
		t.Fatal(err)
	}
	for i, bound := range s.Figures().PeakLive {
		if live[i] < 1 || live[i] > int64(bound) {
			t.Fatalf("%s: stage %d holds %d micro-batches, its bound is %d", p, i, live[i], bound)
		}
	}
}

func digest(e trace.Event) kernels.Digest {
	if e.Digest == nil {
		return kernels.Digest{}
	}
	return *e.Digest
}
