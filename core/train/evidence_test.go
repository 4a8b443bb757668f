package train_test

import (
	"math"
	"testing"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Gradients are handed to the communicator while the backward pass goes on:
// every block's but the first block's before the pass is over.
func TestReductionsOverlapTheBackwardPass(t *testing.T) {
	cfg := config(t, "nano", "dp=2")
	cfg.Model.SeqLen = 11
	h := outcome(t, cfg, plain()).History
	for rank, events := range h.Ranks {
		for step := range cfg.Steps {
			var issued, early int
			for _, e := range events {
				switch {
				case e.Step != step:
				case e.Kind == trace.KindIssue && e.Unit[:5] == "block":
					issued++
				case e.Kind == trace.KindPhase && e.What == trace.Backward:
					early = issued
				}
			}
			if issued != cfg.Model.Layers || early < cfg.Model.Layers-1 {
				t.Errorf("rank %d, step %d: %d blocks were issued, %d before the last unit's backward pass ended", rank, step, issued, early)
			}
		}
	}
}

// memory is the evidence of a rank's memory after a step.
func memory(h *trace.History, rank, step int) map[string]trace.Event {
	out := map[string]trace.Event{}
	for _, e := range h.Ranks[rank] {
		if e.Kind == trace.KindMemory && e.Step == step {
			out[e.What] = e
		}
	}
	return out
}

// At rest a rank of ZeRO stage 3 holds its shard and nothing else; at most two
// neighbouring units are whole at once, and one unit's gradient.
func TestStage3MemoryIsTheShard(t *testing.T) {
	for _, p := range []string{"dp=2,zero=3", "dp=3,zero=3", "dp=8,zero=3"} {
		cfg := config(t, "nano", p)
		cfg.Model.SeqLen = 11
		l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
		h := outcome(t, cfg, plain()).History
		levels := map[int]int64{2: 3, 3: 1, 8: 1}[cfg.Plan.DP] // log2(D/dp) + 1
		for rank := range cfg.Plan.DP {
			own, pair, unit := int64(0), 0, 0
			for i := range l.Units {
				n := l.Units[i].Len()
				own += int64((shard.Part{Index: rank, Size: cfg.Plan.DP}).Of(n).Len())
				unit = max(unit, n)
				if i > 0 {
					pair = max(pair, n+l.Units[i-1].Len())
				}
			}
			m := memory(h, rank, 1)
			for what, want := range map[string][2]int64{ // live, peak
				"weights": {4 * own, 4 * (own + int64(pair))},
				"grads":   {4 * own * levels, 4 * (own*levels + int64(unit))},
				"moments": {8 * own, 8 * own},
			} {
				if e := m[what]; e.Count != want[0] || e.Bytes != want[1] {
					t.Errorf("%s, rank %d: %s take %d bytes at rest and %d at most, want %d and %d", p, rank, what, e.Count, e.Bytes, want[0], want[1])
				}
			}
		}
	}
}

// spoiled puts a value into the gradients of norm weights.
type spoiled struct {
	kernels.Backend
	v float64
}

func (s spoiled) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	s.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	s.Fill(dw.Range(3, 4), s.v)
}

// A gradient norm that is not finite steps nobody: weights, moments and the
// optimizer's counter stay, on every rank.
func TestNonFiniteNormStepsNobody(t *testing.T) {
	for p, v := range map[string]float64{"dp=1": math.NaN(), "dp=2": math.Inf(-1), "dp=4,zero=3": math.NaN(), "dp=2,tp=2,zero=1": math.Inf(1)} {
		cfg, parts := small(t, "nano", p), plain()
		parts.Backend = func(rank int) (kernels.Backend, error) {
			if rank == cfg.Plan.World()-max(1, cfg.Plan.TP) {
				return spoiled{ref.New[float32](), v}, nil // one data-parallel rank's gradient
			}
			return ref.New[float32](), nil
		}
		h := outcome(t, cfg, parts).History
		skips := 0
		weights := map[int]kernels.Digest{}
		for e := range h.All {
			switch {
			case e.Kind == trace.KindSkip:
				skips++
			case e.Kind == trace.KindScalar && e.What == trace.Norm:
				if v := float64(e.Value); !math.IsNaN(v) && !math.IsInf(v, 0) {
					t.Fatalf("%s: the norm is %v", p, v)
				}
			case e.Kind == trace.KindScalar && e.What == trace.Counter && e.Value != 0:
				t.Errorf("%s: rank %d counts %v steps", p, e.Rank, e.Value)
			case e.Kind == trace.KindDigest && e.Once && e.What == trace.Weight:
				d := weights[e.Step]
				d.Add(*e.Digest)
				weights[e.Step] = d
			}
		}
		if skips != cfg.Plan.World()*cfg.Steps {
			t.Errorf("%s: %d skipped steps, want %d", p, skips, cfg.Plan.World()*cfg.Steps)
		}
		if len(weights) != 3 || weights[-1] != weights[0] || weights[-1] != weights[1] {
			t.Errorf("%s: weights moved: %v", p, weights)
		}
	}
}

// The Spec of a history replays the run.
func TestSpecReplays(t *testing.T) {
	cfg := small(t, "odd", "dp=2,tp=2,zero=1,microbatches=4")
	cfg.Optimizer.Decay = -1
	first := outcome(t, cfg, plain())
	again, err := spec.Of(first.History.Header.Spec)
	if err != nil {
		t.Fatal(err)
	}
	want, err := spec.FingerprintAt(first.History, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := fingerprint(t, again); got != want {
		t.Errorf("replayed %v\nrecorded %v", got, want)
	}
	if again.TextHash != data.Default().Hash() || again.Text != "default" {
		t.Errorf("the spec names text %q with hash %s", again.Text, again.TextHash)
	}
	for _, s := range []string{"", "[]", `{"model":{"vocab":-1}}`} {
		if _, err := spec.Parse([]byte(s)); err == nil {
			t.Errorf("spec %q was accepted", s)
		}
	}
}

func TestFingerprintNeedsEvidence(t *testing.T) {
	cfg := small(t, "nano", "dp=2")
	h := outcome(t, cfg, plain()).History
	for _, step := range []int{-1, 2} { // no loss yet; no such step
		if _, err := spec.FingerprintAt(h, step); err == nil {
			t.Errorf("step %d has a fingerprint", step)
		}
	}
	cfg.Recording.Digests = false
	if _, err := spec.FingerprintAt(outcome(t, cfg, plain()).History, 1); err == nil {
		t.Error("a history without digests has a fingerprint")
	}
}

func TestRunRefusesWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		change func(*spec.Config)
		text   data.Text
		says   string
	}{
		{func(c *spec.Config) { c.Plan.DP = 17 }, data.Default(), "dp=17"},
		{func(c *spec.Config) { c.Sequences = -1 }, data.Default(), "sequences=-1"},
		{func(c *spec.Config) { c.Steps = -1 }, data.Default(), "steps=-1"},
		{func(c *spec.Config) { c.Model.Vocab = 100 }, data.Default(), "must lie below the vocabulary size 100"},
		{func(c *spec.Config) { c.Blank = []int{16} }, data.Default(), "blank position 16"},
		{func(*spec.Config) {}, data.Text{Name: "short", Bytes: []byte("abc")}, "short"},
	} {
		cfg := small(t, "nano", "")
		c.change(&cfg)
		_, err := launch.Local(t.Context(), cfg, c.text, plain())
		says(t, err, c.says)
	}
	if _, err := spec.Preset("giant"); err == nil {
		t.Error("an unknown preset was made")
	}
}
