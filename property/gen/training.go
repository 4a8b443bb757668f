package gen

import (
	"bytes"
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Training draws a small model of the given numbers of layers, an optimizer and
// a global batch: fewer sequences than logical workers or more, some of them
// without a valid token. It records digests and takes two steps.
func Training(t *rapid.T, layers *rapid.Generator[int]) spec.Config {
	c := spec.Config{Model: Config(t, '\n'+1), Seed: rapid.Uint64().Draw(t, "seed"), Steps: 2}
	c.Model.Layers = layers.Draw(t, "layers")
	c.Sequences = rapid.IntRange(1, 17).Draw(t, "sequences")
	for i := 1; i < c.Sequences; i++ { // one sequence at least has valid tokens
		if rapid.IntRange(0, 3).Draw(t, "blank") == 0 {
			c.Blank = append(c.Blank, i)
		}
	}
	c.Optimizer = optim.Config{LR: 0.01, Name: rapid.SampledFrom([]string{"adamw", "sgd"}).Draw(t, "optimizer"),
		Clip: rapid.SampledFrom([]float64{0, 0.5, 100}).Draw(t, "clip")}
	c.Recording.Digests = true
	return c
}

// Text draws a text that is long enough for one step of c, in paragraphs of
// unequal length: so sequences have unequal numbers of valid tokens.
func Text(t *rapid.T, c spec.Config) data.Text {
	return Paragraphs(t, c, c.Sequences+rapid.IntRange(0, 5).Draw(t, "more paragraphs"))
}

// Paragraphs draws a text of n paragraphs, each of which makes a sequence or more.
func Paragraphs(t *rapid.T, c spec.Config, n int) data.Text {
	letter := rapid.Map(rapid.IntRange(0, c.Model.Vocab-2), func(i int) byte {
		if i >= '\n' {
			i++ // line ends separate paragraphs
		}
		return byte(i)
	})
	paragraph := rapid.Map(rapid.SliceOfN(letter, 2, 2+2*c.Model.SeqLen), func(p []byte) []byte {
		if p[0] == '\r' {
			p[0] = 0 // after line ends it would be one of them, and what is left too short
		}
		return p
	})
	return data.Text{Name: "drawn", Bytes: bytes.Join(rapid.SliceOfN(paragraph, n, n).Draw(t, "text"), []byte("\n\n"))}
}

// Axes says which axes of a plan are drawn; the others stay at one rank.
type Axes struct{ Data, Tensor, Pipeline bool }

// maxWorld bounds the ranks of a drawn plan.
const maxWorld = 24

// Plan draws a plan that fits c, along the given axes: any number of
// data-parallel ranks up to 8, ZeRO stages with their forms, schedules with
// fewer micro-batches than stages or more.
func Plan(t *rapid.T, c spec.Config, axes Axes) plan.Plan {
	var p plan.Plan
	left := maxWorld
	size := func(name string, most int) int {
		n := rapid.IntRange(1, max(1, min(most, left))).Draw(t, name)
		left /= n
		return n
	}
	if axes.Tensor {
		p.TP = 1
		for p.TP < c.Model.Groups.Tensor && rapid.Bool().Draw(t, "double tp") {
			p.TP *= 2
		}
		left /= p.TP
		p.Vocab = rapid.SampledFrom([]string{plan.VocabReplicated, plan.VocabParallel}).Draw(t, "vocab")
	}
	if axes.Pipeline {
		p.PP = size("pp", c.Model.Layers)
		drawSchedule(t, c, &p)
	}
	if axes.Data {
		p.DP = size("dp", min(8, c.Sequences))
		drawZero(t, &p)
	}
	p.MicroBatches = MicroBatches(t, c, p)
	if err := p.Validate(c.Model, c.Sequences); err != nil {
		t.Fatalf("drawn plan: %v", err)
	}
	return p
}

// MicroBatches draws a number of micro-batches that the plan allows.
func MicroBatches(t *rapid.T, c spec.Config, p plan.Plan) int {
	return p.Workers(c.Model) / max(1, p.DP) * rapid.IntRange(1, 3).Draw(t, "micro-batches per worker")
}

func drawSchedule(t *rapid.T, c spec.Config, p *plan.Plan) {
	known := []string{plan.OneF1B, plan.GPipe}
	if p.PP > 1 && c.Model.Layers >= 2*p.PP {
		known = append(known, plan.Interleaved)
	}
	if p.Schedule = rapid.SampledFrom(known).Draw(t, "schedule"); p.Schedule == plan.Interleaved {
		p.Virtual = rapid.IntRange(2, c.Model.Layers/p.PP).Draw(t, "virtual")
	}
}

func drawZero(t *rapid.T, p *plan.Plan) {
	p.Zero = rapid.IntRange(0, 3).Draw(t, "zero")
	forms := map[int][]string{1: {plan.ShardFlat, plan.ShardRoundRobin, plan.ShardContiguous, plan.ShardBalanced}, 3: {plan.ShardFlat, plan.ShardTensors}}
	if known := forms[p.Zero]; known != nil {
		p.Shard = rapid.SampledFrom(known).Draw(t, "shard")
	}
}

// Run trains c under a plan and fails the property where that fails.
func Run(t *rapid.T, c spec.Config, text data.Text, p plan.Plan, parts launch.Parts) *launch.Outcome {
	c.Plan = p
	if parts.Backend == nil {
		parts.Backend = func(int) (kernels.Backend, error) { return ref.New[float32](), nil }
	}
	parts.Deadline = 20 * time.Second
	out, err := launch.Local(context.Background(), c, text, parts)
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	return out
}

// Answer is the state after the last step of c under a plan.
func Answer(t *rapid.T, c spec.Config, text data.Text, p plan.Plan) spec.Fingerprint {
	return AnswerOf(t, c, Run(t, c, text, p, launch.Parts{}))
}

// AnswerOf is the state after the last step of an outcome of c.
func AnswerOf(t *rapid.T, c spec.Config, out *launch.Outcome) spec.Fingerprint {
	f, err := spec.FingerprintAt(out.History, c.Steps-1)
	if err != nil {
		t.Fatalf("%s: %v", out.History.Header.Plan, err)
	}
	return f
}

// Same fails the property where two plans have different answers.
func Same(t *rapid.T, p plan.Plan, got spec.Fingerprint, q plan.Plan, want spec.Fingerprint) {
	if got != want {
		t.Fatalf("%s: %v\n%s: %v", p, got, q, want)
	}
}
