package combinations_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/null"
	"github.com/lockstep-ml/lockstep/property/gen"
)

// all is every axis of a plan.
func all() gen.Axes { return gen.Axes{Data: true, Tensor: true, Pipeline: true} }

var _ = Describe("A product of data, tensor and pipeline parallelism",
	Label("C-DDP-001", "C-ZERO-001", "C-TP-001", "C-PIPE-001", "C-DET-001"), func() {
		It("gives the bits of one worker, or of plain data parallelism where its size does not divide the groups", func() {
			gen.Check("one-answer", func(t *rapid.T) {
				c := gen.Training(t, rapid.IntRange(1, 5))
				text := gen.Text(t, c)
				p := gen.Plan(t, c, all())
				control := p.Unsplit(c.Model)
				gen.Same(t, p, gen.Answer(t, c, text, p), control, gen.Answer(t, c, text, control))
			})
		})

		It("gives the bits of every plan whose sums have the same order, whatever the communicator", func() {
			gen.Check("same-bits", func(t *rapid.T) {
				c := gen.Training(t, rapid.IntRange(1, 4))
				text := gen.Text(t, c)
				p := gen.Plan(t, c, all())
				p.Comm = rapid.SampledFrom([]names.Algorithm{names.Ring, names.Star}).Draw(t, "comm")
				others := []plan.Plan{p.Unsplit(c.Model)}
				if q := recast(t, c, p); q.Validate(c.Model, c.Sequences) == nil {
					others = append(others, q)
				}
				want := gen.Answer(t, c, text, p)
				for _, q := range others {
					if p.SameBits(q, c.Model) {
						gen.Same(t, q, gen.Answer(t, c, text, q), p, want)
					}
				}
			})
		})

		It("gives the bits of an uninterrupted run after a checkpoint under any other", func() {
			gen.Check("resume", func(t *rapid.T) {
				c := gen.Training(t, rapid.IntRange(1, 4))
				c.Steps = 3
				text := gen.Text(t, c)
				before, after := gen.Plan(t, c, all()), gen.Plan(t, c, all())
				for !before.Exact(c.Model) || !after.Exact(c.Model) {
					before.DP, before.MicroBatches, after.DP, after.MicroBatches = 1, 0, 1, 0
				}
				want := gen.Answer(t, c, text, after.Unsplit(c.Model))
				half := c
				half.Steps = rapid.IntRange(1, 2).Draw(t, "steps before the checkpoint")
				dir, err := os.MkdirTemp("", "checkpoint")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				gen.Run(t, half, text, before, launch.Parts{Hooks: train.Hooks{Checkpoints: train.Checkpoints{Dir: dir}}})
				ck, err := checkpoint.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer ck.Close()
				out := gen.Run(t, c, text, after, launch.Parts{Hooks: train.Hooks{Checkpoints: train.Checkpoints{Resume: ck}}})
				gen.Same(t, after, gen.AnswerOf(t, c, out), after.Unsplit(c.Model), want)
			})
		})

		It("allocates and sends what its dry run says", func() {
			gen.Check("dry-run", func(t *rapid.T) {
				c := gen.Training(t, rapid.IntRange(1, 6))
				c.Recording.Digests = false
				text := gen.Text(t, c)
				c.Plan = gen.Plan(t, c, all())
				r, err := dryrun.New(c)
				if err != nil {
					t.Fatal(err)
				}
				backends := make([]*null.Backend, c.Plan.World())
				out := gen.Run(t, c, text, c.Plan, launch.Parts{Backend: func(rank int) (kernels.Backend, error) {
					backends[rank] = null.New()
					return backends[rank], nil
				}})
				for _, k := range r.Ranks {
					for _, id := range k.IDs {
						checkRank(t, c, k, id, out.History.Ranks[id], backends[id].Counts().Peak)
					}
				}
			})
		})
	})

// recast changes some of a plan.
func recast(t *rapid.T, c spec.Config, p plan.Plan) plan.Plan {
	q := gen.Plan(t, c, all())
	q.DP, q.Comm, q.MicroBatches = p.DP, p.Comm, 0
	for _, f := range []struct {
		name string
		keep func()
	}{
		{"zero", func() { q.Zero, q.Shard = p.Zero, p.Shard }},
		{"tp", func() { q.TP, q.Vocab = p.TP, p.Vocab }},
		{"pp", func() { q.PP, q.Schedule, q.Virtual, q.MicroBatches = p.PP, p.Schedule, p.Virtual, p.MicroBatches }},
	} {
		if rapid.Bool().Draw(t, "keep "+f.name) {
			f.keep()
		}
	}
	return q
}

// checkRank compares a rank's second step with the dry run's figures.
func checkRank(t *rapid.T, c spec.Config, want dryrun.Ranks, id int, events []trace.Event, allocated int64) {
	if allocated != want.Memory.Total {
		t.Fatalf("%s: rank %d allocates %d bytes, the dry run says %d", c.Plan, id, allocated, want.Memory.Total)
	}
	var sent, said int64
	for _, n := range want.Sent {
		said += n
	}
	for _, e := range events {
		switch {
		case e.Step != 1:
		case e.Kind == trace.KindComm && e.Op != names.OpRecv:
			sent += e.Bytes
		case e.Kind == trace.KindMemory && e.What == "state" && e.Bytes != want.Memory.State:
			t.Fatalf("%s: rank %d has at most %d bytes of state, the dry run says %d", c.Plan, id, e.Bytes, want.Memory.State)
		}
	}
	if sent != said {
		t.Fatalf("%s: rank %d sends %d bytes, the dry run says %d", c.Plan, id, sent, said)
	}
}
