package suite_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	formulas "github.com/lockstep-ml/lockstep/contracts/formulas/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// The cases hold, mutants are caught, and what is taken away from the evidence
// of a case leaves clauses without a verdict. Runs are shared.
func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := formulas.Suite()
	all := c.Cases(contracttest.Options())
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			for _, res := range r.Held(t, c, []suite.Case{cs}) {
				t.Logf("%s: observed / bound %.3g", res.Clause.ID, res.MaxRatio)
			}
		})
	}
	tap := func(unit, tensor string) func(trace.Event) bool {
		return func(e trace.Event) bool {
			return e.Kind == trace.KindTap && e.Unit == unit && e.Tensor == tensor && e.Micro == 2
		}
	}
	digest := func(what string, step int) func(trace.Event) bool {
		return func(e trace.Event) bool {
			return e.Kind == trace.KindDigest && e.What == what && e.Step == step && e.Tensor == "model.norm.weight"
		}
	}
	scalar := func(what string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindScalar && e.What == what && e.Step == 2 }
	}
	for _, x := range []struct {
		name    string
		lost    func(trace.Event) bool
		clauses []string
	}{
		{"all activations", func(e trace.Event) bool { return e.Kind == trace.KindTap }, []string{"2"}},
		{"an activation", tap("block.2", "attention"), []string{"2"}},
		{"a gradient of one", tap("final", "dlogits"), []string{"2"}},
		{"tokens", tap("embed", "tokens"), []string{"2"}},
		{"targets", tap("final", "targets"), []string{"2"}},
		{"a loss", scalar(trace.Loss), []string{"2"}},
		{"a norm", scalar(trace.Norm), []string{"3"}},
		{"a coefficient", scalar(trace.Coef), []string{"3"}},
		{"a learning rate", scalar(trace.LR), []string{"3"}},
		{"a counter", scalar(trace.Counter), []string{"3"}},
		{"initial weights", digest(trace.Weight, -1), []string{"1", "4"}},
		{"weights of a step", digest(trace.Weight, 1), []string{"2", "4"}},
		{"moments of a step", digest(trace.MomentV, 1), []string{"4"}},
		{"a gradient", digest(trace.Grad, 2), []string{"2", "3", "4"}},
		{"the last step", func(e trace.Event) bool { return e.Step == 2 }, []string{"2", "3", "4"}},
	} {
		t.Run("without "+x.name, func(t *testing.T) {
			e, err := r.Evidence(t, all[1])
			if err != nil {
				t.Fatal(err)
			}
			contracttest.Want(t, c, contracttest.Without(e, contract.Test, x.lost), contract.Inconclusive, x.clauses...)
		})
	}
	r.Mutants(t, c)
}

// One element of anything that is judged, a thousandth of itself off, is named.
func TestElementsAreNamed(t *testing.T) {
	var r contracttest.Runner
	c := formulas.Suite()
	e, err := r.Evidence(t, c.Cases(contracttest.Options())[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		clause, tensor string
		of             func(trace.Event) bool
	}{
		{"1", "model.layers.3.mlp.up_proj.weight", func(e trace.Event) bool { return e.What == trace.Weight && e.Step == -1 }},
		{"2", "block.1/gate", func(e trace.Event) bool { return e.Unit == "block.1" && e.Tensor == "gate" && e.Micro == 1 }},
		{"2", "block.3/dk", func(e trace.Event) bool { return e.Unit == "block.3" && e.Tensor == "dk" && e.Micro == 0 }},
		{"2", "model.layers.0.self_attn.k_proj.bias", func(e trace.Event) bool { return e.What == trace.Grad && e.Step == 2 }},
		{"4", "model.layers.2.mlp.down_proj.bias", func(e trace.Event) bool { return e.What == trace.MomentM && e.Step == 1 }},
	} {
		bad := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
			for i, e := range events {
				if len(e.Data) == 0 || !x.of(e) || e.Kind == trace.KindDigest && e.Tensor != x.tensor {
					continue
				}
				data := slices.Clone(e.Data)
				top := 0
				for j, v := range data {
					if max(v, -v) > max(data[top], -data[top]) {
						top = j
					}
				}
				data[top] *= 1.001
				events[i].Data = data
			}
			return events
		})
		res := contracttest.Verdicts(c, bad)[x.clause]
		if res.Verdict() != contract.Violated || res.Findings[0].Tensor != x.tensor || res.Findings[0].Index < 0 {
			t.Errorf("clause %s, %s: %s, %d findings", x.clause, x.tensor, res.Verdict(), res.Total)
			contracttest.Log(t, res)
		}
	}
}

// The default cases are judged past the first step, and each that the fixtures do
// not give as they are clips in some steps and not in others.
func TestDefaultCasesClipAndDoNot(t *testing.T) {
	var r contracttest.Runner
	all := formulas.Suite().Cases(contracttest.Options())
	for _, cs := range append(all[:3:3], all[5]) {
		e, err := r.Evidence(t, cs)
		if err != nil {
			t.Fatal(err)
		}
		clipped, steps, judged := 0, 0, -1
		for ev := range e.Histories[contract.Test].All {
			if ev.Kind == trace.KindScalar && ev.What == trace.Coef {
				if steps++; ev.Value < 1 {
					clipped++
				}
			}
			if ev.Kind == trace.KindTap {
				judged = ev.Step
			}
		}
		cfg := cs.Runs[contract.Test].Config
		if clipped == 0 || clipped == steps || cs.Clauses == nil && judged < cfg.Optimizer.Warmup {
			t.Errorf("%s: %d of %d steps clipped, step %d judged after a warm-up of %d", cs.Name, clipped, steps, judged, cfg.Optimizer.Warmup)
		}
	}
}

// The case of long sequences is judged where it is long: tokens past 128 have targets.
func TestLongSequencesHaveTargets(t *testing.T) {
	var r contracttest.Runner
	cs, ok := formulas.Suite().Find(contracttest.Options(), "odd of 140 tokens")
	if !ok {
		t.Fatal("no such case")
	}
	e, err := r.Evidence(t, cs)
	if err != nil {
		t.Fatal(err)
	}
	length, valid := cs.Runs[contract.Test].Config.Model.SeqLen, 0
	for ev := range e.Histories[contract.Test].All {
		if ev.Kind != trace.KindTap || ev.Tensor != "targets" {
			continue
		}
		for i, y := range ev.Data {
			if i%length > 128 && y >= 0 {
				valid++
			}
		}
	}
	if valid == 0 {
		t.Error("no token past 128 has a target")
	}
}

// shapes are configurations unlike the fixtures.
func shapes() map[string]func(c *spec.Config) {
	return map[string]func(c *spec.Config){
		"tied, no biases":    func(c *spec.Config) { c.Model.Tied = true },
		"all biases, untied": func(c *spec.Config) { c.Model.QKVBias, c.Model.LinearBias, c.Model.InitBias = true, true, 0.2 },
		"one key head":       func(c *spec.Config) { c.Model.KVHeads = 1 },
		"as many key heads":  func(c *spec.Config) { c.Model.KVHeads = c.Model.Heads },
		"one block, a token": func(c *spec.Config) { c.Model.Layers, c.Model.SeqLen = 1, 1 },
		"wide heads":         func(c *spec.Config) { c.Model.HeadDim = 34 },
		"fewer sequences":    func(c *spec.Config) { c.Sequences = 3 },
		"blank sequences":    func(c *spec.Config) { c.Blank = []int{0, 9} },
		"several micro-batches": func(c *spec.Config) {
			c.Plan.MicroBatches = 16
		},
		"no decay, no warm-up": func(c *spec.Config) { c.Optimizer.Decay, c.Optimizer.Warmup, c.Optimizer.Horizon = -1, 0, 0 },
	}
}

// Whatever the shape, clauses hold; a plan of several ranks is not judged.
func TestShapes(t *testing.T) {
	var r contracttest.Runner
	c := formulas.Suite()
	for name, change := range shapes() {
		t.Run(name, func(t *testing.T) {
			cfg := *c.Cases(contracttest.Options())[0].Runs[contract.Test].Config
			change(&cfg)
			r.Held(t, c, []suite.Case{formulas.Case("shape", cfg, contracttest.Options())})
		})
	}
	cfg := *c.Cases(contracttest.Options())[0].Runs[contract.Test].Config
	cfg.Plan.DP = 2
	e, err := r.Evidence(t, suite.Case{Name: "two", Runs: map[contract.Role]suite.Run{contract.Test: suite.Train(cfg, contracttest.Options())}})
	if err != nil {
		t.Fatal(err)
	}
	contracttest.Want(t, c, e, contract.Inconclusive, "1", "2", "3", "4")
}

// Cases of named configurations fit the time of a level, and keep the model.
func TestNamedConfigurations(t *testing.T) {
	for _, x := range []struct {
		config               string
		level, seqLen, batch int
	}{
		{"nano", 1, 32, 16}, {"odd", 1, 45, 13}, {"5M", 1, 31, 3}, {"5M", 2, 71, 16}, {"50M", 1, 8, 3}, {"50M", 2, 25, 3},
	} {
		o := contracttest.Options()
		o.Config, o.Level = x.config, x.level
		cfg := formulas.Suite().Cases(o)[0].Runs[contract.Test].Config
		if cfg.Model.SeqLen != x.seqLen || cfg.Sequences != x.batch || !strings.HasPrefix(cfg.Model.Name, x.config) {
			t.Errorf("%s at level %d: %d sequences of %d, want %d of %d", x.config, x.level, cfg.Sequences, cfg.Model.SeqLen, x.batch, x.seqLen)
		}
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, x := range []struct {
		config                        string
		level, seqLen, layers, hidden int
	}{{"5M", 1, 128, 4, 256}, {"50M", 1, 512, 1, 16}, {"50M", 3, 512, 12, 512}} {
		o := contracttest.Options()
		o.Config, o.Level = x.config, x.level
		all := formulas.Suite().Cases(o)
		m, want := all[1].Runs[contract.Test].Config.Model, all[0].Runs[contract.Test].Config.Model
		if len(all) != 2 || m.SeqLen != x.seqLen || m.Layers != x.layers || m.Hidden != x.hidden || m.HeadDim != want.HeadDim || m.RopeTheta != want.RopeTheta {
			t.Errorf("%s at level %d: %d cases, the second of %+v", x.config, x.level, len(all), m)
		}
		if got := all[1].Runs[contract.Test].Do; got == nil {
			t.Errorf("%s at level %d: no activations are recorded", x.config, x.level)
		}
	}
	o := contracttest.Options()
	o.Config = "nano"
	if n := len(formulas.Suite().Cases(o)); n != 1 {
		t.Errorf("nano: %d cases, want its own alone, whose sequences are whole", n)
	}
}

// Of a model whose elements there is no memory for, as many blocks are judged as there is
// memory for, and that is said; where there is none for one, the bytes are named.
func TestModelsBeyondTheMemory(t *testing.T) {
	for _, x := range []struct {
		config      string
		memory      int64
		layers      int
		less, lacks string
	}{
		{"50M", 8 << 30, 12, "", ""},
		{"50M", 4 << 30, 1, "1 of 12 blocks, as wide as they are: a run whose elements are all kept needs 6.2 GiB of memory for all blocks, 3.8 GiB for these, and 4.0 GiB may be used", ""},
		{"50M", 1 << 30, 1, "", "a run of one of 50M's 12 blocks, all of whose elements are kept, needs 3.8 GiB of memory, and 1.0 GiB may be used"},
		{"350M", 1 << 40, 24, "", ""},
		{"350M", 20 << 30, 15, "15 of 24 blocks", ""},
		{"llama2-7b", 0, 1, "", "and 16.0 GiB may be used"},
	} {
		o := contracttest.Options()
		o.Config, o.Memory = x.config, x.memory
		cs := formulas.Suite().Cases(o)[0]
		if n := cs.Runs[contract.Test].Config.Model.Layers; n != x.layers || !strings.Contains(cs.Less, x.less) || (x.less == "") != (cs.Less == "") ||
			!strings.Contains(cs.Lacks, x.lacks) || (x.lacks == "") != (cs.Lacks == "") {
			t.Errorf("%s in %d bytes: %d blocks, less %q, lacks %q", x.config, x.memory, n, cs.Less, cs.Lacks)
		}
	}
}

// A recorded tap has the digest of its elements, and survives a file.
func TestTapsAreEvents(t *testing.T) {
	var r contracttest.Runner
	e, err := r.Evidence(t, formulas.Suite().Cases(contracttest.Options())[0])
	if err != nil {
		t.Fatal(err)
	}
	h := e.Histories[contract.Test]
	dir := t.TempDir()
	if err := h.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := trace.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, ev := range again[0].Ranks[0] {
		if ev.Kind != trace.KindTap {
			continue
		}
		n++
		if !slices.Equal(ev.Data, h.Ranks[0][i].Data) || len(ev.Data) == 0 {
			t.Fatalf("%s %s: other elements than were recorded", ev.Unit, ev.Tensor)
		}
		var d kernels.Digest
		for j, x := range ev.Data {
			a, b := kernels.Mix(kernels.TensorID(ev.Tensor), uint64(j), uint64(kernels.Bits(x)))
			d.A, d.B = d.A+a, d.B+b
		}
		if d != *ev.Digest {
			t.Fatalf("%s %s: digest %v, want %v", ev.Unit, ev.Tensor, ev.Digest, d)
		}
	}
	if want := 8 * (2 + 4*20 + 6); n != want { // micro-batches; batch, blocks, final
		t.Errorf("%d taps, want %d", n, want)
	}
}

func TestComplete(t *testing.T) {
	if err := contracts.Validate([]*suite.Suite{formulas.Suite()}); err != nil {
		t.Error(err)
	}
}
