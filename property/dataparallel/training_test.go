package dataparallel_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
	"github.com/lockstep-ml/lockstep/property/gen"
)

// leastVocab is room for the line ends that separate paragraphs.
const leastVocab = '\n' + 1

// drawTraining draws a model, an optimizer, and a global batch: 1 to 20
// sequences, fewer than workers or not, some of them blank.
func drawTraining(t *rapid.T) spec.Config {
	c := spec.Config{Model: gen.Config(t, leastVocab), Seed: rapid.Uint64().Draw(t, "seed"), Steps: 2}
	c.Recording.Digests = true
	c.Sequences = rapid.IntRange(1, 20).Draw(t, "sequences")
	for i := 1; i < c.Sequences; i++ {
		if rapid.IntRange(0, 3).Draw(t, "blank") == 3 {
			c.Blank = append(c.Blank, i)
		}
	}
	c.LastStep = rapid.SampledFrom([]data.Policy{data.Drop, data.Pad}).Draw(t, "last step")
	c.Optimizer = optim.Config{
		Name: rapid.SampledFrom([]string{"adamw", "sgd"}).Draw(t, "optimizer"), LR: 0.01,
		Decay: rapid.SampledFrom([]float64{-1, 0.1}).Draw(t, "decay"), Clip: rapid.SampledFrom([]float64{0, 0.5, 100}).Draw(t, "clip"),
	}
	return c
}

// drawText draws a text of at least one step, in paragraphs of unequal length:
// so sequences have unequal numbers of valid tokens. Where the last step is
// padded, it may be shorter than the batch.
func drawText(t *rapid.T, c spec.Config) data.Text {
	n := c.Sequences + rapid.IntRange(0, c.Sequences).Draw(t, "more paragraphs")
	if c.LastStep == data.Pad {
		n = rapid.IntRange(1, 2*c.Sequences).Draw(t, "paragraphs")
	}
	return gen.Paragraphs(t, c, n)
}

// drawMicroBatches draws a number of micro-batches that the plan allows.
func drawMicroBatches(t *rapid.T, c spec.Config, p plan.Plan) int {
	return p.Workers(c.Model) / max(1, p.DP) * rapid.IntRange(1, 3).Draw(t, "micro-batches per worker")
}

// answer trains under a plan.
func answer(t *rapid.T, c spec.Config, text data.Text, p plan.Plan) spec.Fingerprint {
	c.Plan = p
	out, err := launch.Local(context.Background(), c, text, launch.Parts{Deadline: 20 * time.Second,
		Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }})
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	f, err := spec.FingerprintAt(out.History, c.Steps-1)
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	return f
}

// equal fails the property where two plans have different answers.
func equal(t *rapid.T, p plan.Plan, got spec.Fingerprint, q plan.Plan, want spec.Fingerprint) {
	if got != want {
		t.Fatalf("%s: %v\n%s: %v", p, got, q, want)
	}
}

var _ = Describe("Training", Label("C-DDP-001"), func() {
	It("gives the bits of one worker under every exact plan", func() {
		gen.Check("one-answer", func(t *rapid.T) {
			c := drawTraining(t)
			text := drawText(t, c)
			var sizes []int
			for dp := 1; dp <= min(c.Model.Groups.Data, c.Sequences); dp *= 2 {
				sizes = append(sizes, dp)
			}
			p := plan.Plan{DP: rapid.SampledFrom(sizes).Draw(t, "dp"), Zero: rapid.IntRange(0, 3).Draw(t, "zero"),
				TP:    min(c.Model.Groups.Tensor, rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "tp")),
				Vocab: rapid.SampledFrom([]string{plan.VocabReplicated, plan.VocabParallel}).Draw(t, "vocab")}
			p.MicroBatches = drawMicroBatches(t, c, p)
			if !p.Exact(c.Model) {
				t.Fatalf("%s is not exact", p)
			}
			equal(t, p, answer(t, c, text, p), plan.Plan{}, answer(t, c, text, plan.Plan{}))
		})
	})

	It("gives the same bits at every ZeRO stage, whatever the number of ranks", func() {
		gen.Check("stages", func(t *rapid.T) {
			c := drawTraining(t)
			text := drawText(t, c)
			ddp := plan.Plan{DP: rapid.IntRange(1, min(8, c.Sequences)).Draw(t, "dp")}
			want := answer(t, c, text, ddp)
			for zero := 1; zero <= 3; zero++ {
				p := plan.Plan{DP: ddp.DP, Zero: zero}
				p.MicroBatches = drawMicroBatches(t, c, p)
				equal(t, p, answer(t, c, text, p), ddp, want)
			}
			if p := (plan.Plan{}); ddp.Exact(c.Model) {
				equal(t, ddp, want, p, answer(t, c, text, p))
			}
		})
	})
})
