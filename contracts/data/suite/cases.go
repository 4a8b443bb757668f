package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Shapes of the default cases: what a model computes is not in question, so it is
// small. On the text of all bytes an epoch has two to five steps, so every run
// passes its end.
const layers, tokens, steps = 2, 16, 6

// Ends of the names of cases.
const (
	dropped = " bytes"        // on the text of all bytes, over the end of it
	padded  = " bytes padded" // that with the last step padded
	toEnd   = " to the end"   // on the text that was asked for, over the end of it
	again   = " of five epochs"
)

// epoch is how many whole steps the text of the cases over many epochs has.
const epoch = 7

// The places of late cases: the sequences before them are more than 16, and more than
// 32, bits count.
var (
	many = suite.Later{Step: 20_011, Taken: 20_007}
	most = suite.Later{Step: spec.MaxSteps - steps, Taken: 1 << 20}
)

// perStep is how many sequences a step of a small case has.
const perStep = 5

// small is a small model whose steps are as short.
func small(c *spec.Config) {
	c.Model.Layers, c.Model.Hidden, c.Model.Intermediate, c.Model.SeqLen = 1, 8, 8, 8
	c.Sequences, c.Blank = perStep, []int{3}
}

func smallPadded(c *spec.Config) {
	small(c)
	c.LastStep = data.Pad
}

// lasting takes a small model through its text again and again.
func lasting(c *spec.Config) {
	small(c)
	c.Steps = max(c.Steps, 5*(epoch+1))
}

func lastingPadded(c *spec.Config) {
	lasting(c)
	c.LastStep = data.Pad
}

// onBytes puts a fixture on the text of all bytes, unless another was asked for.
func onBytes(c *spec.Config) {
	if c.Text == data.Default().Name {
		c.Text = data.BytesName
	}
}

func onPaddedBytes(c *spec.Config) {
	onBytes(c)
	c.LastStep = data.Pad
}

// fixtures are the default cases of a level.
func fixtures(level int) []suite.Fixture {
	f := func(config, suffix string, change func(*spec.Config), plans ...string) suite.Fixture {
		return suite.Fixture{Config: config, Steps: steps, Plans: plans, Change: change, Suffix: suffix}
	}
	out := []suite.Fixture{
		f("nano", "", nil, "dp=2"),
		f("nano", dropped, onBytes, "dp=4,microbatches=4", "dp=2,pp=2,zero=2"),
		f("nano", padded, onPaddedBytes, "dp=2,zero=3"),
		f("odd", dropped, onBytes, "dp=4,microbatches=3", "dp=3"),
		f("odd", padded, onPaddedBytes, "dp=2,tp=2,microbatches=6", "dp=1"),
		f("odd", toEnd, onPaddedBytes, "dp=4,zero=1"),
		{Config: "nano", Steps: steps, Plans: []string{"dp=2"}, Change: lasting, Suffix: again, Epoch: epoch},
		{Config: "odd", Steps: steps, Plans: []string{"dp=1"}, Change: lastingPadded, Suffix: again + ", padded", Epoch: epoch},
		{Config: "nano", Steps: steps, Plans: []string{"dp=2"}, Change: small, Suffix: many.Suffix(), At: many},
		{Config: "nano", Steps: steps, Plans: []string{"dp=1"}, Change: smallPadded, Suffix: most.Suffix() + ", padded", Epoch: epoch, At: most},
		{Config: "odd", Steps: steps, Plans: []string{"dp=2"}, Change: small, Suffix: most.Suffix(), At: most},
	}
	if level > 1 {
		out = append(out,
			f("nano", " as it is", nil, "dp=8", "dp=4,zero=2", "tp=4", "dp=2,tp=2,pp=2"),
			f("nano", padded+" more", onPaddedBytes, "dp=8,zero=1", "dp=5", "pp=2,microbatches=16"),
			f("odd", dropped+" more", onBytes, "dp=2,zero=2", "dp=4,zero=3,microbatches=2", "dp=5", "tp=4,vocab=parallel"))
	}
	return out
}

// list makes the cases of options.
func list(o suite.Options) []suite.Case {
	g := suite.Grid{Fixtures: fixtures, Named: named, Prepare: prepare, Runs: runs}
	return g.Cases(o)
}

func named(config string, _ int) suite.Fixture {
	return suite.Fixture{Config: config, Steps: 2, Plans: []string{"dp=2"}}
}

// prepare makes a fixture small and records nothing but what it was given.
func prepare(o suite.Options, c *spec.Config) {
	c.Recording = spec.Recording{}
	if o.Config != "" {
		return
	}
	c.Model.SeqLen, c.Steps = tokens, max(c.Steps, steps)
	if len(o.Plans) == 0 {
		c.Model.Layers = layers
	}
}

// short is the largest text, in bytes, that a case takes whole in an epoch of
// three steps.
const short = 1 << 16

// runs are the run of a case: nothing is compared with it but the text.
func runs(o suite.Options, f suite.Fixture, on ...spec.Config) map[contract.Role]suite.Run {
	cfg := on[0]
	if f.Suffix == toEnd && cfg.Text == o.Text.Name && len(o.Text.Bytes) <= short {
		if set, err := cfg.Set(o.Text); err == nil {
			// Two full steps and one that is padded.
			cfg.Sequences = max(cfg.Sequences, set.Len()*2/5)
		}
	}
	return map[contract.Role]suite.Run{contract.Test: f.At.Run(cfg, o)}
}
