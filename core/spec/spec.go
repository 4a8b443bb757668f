// Package spec says what a run is: its configuration with defaults filled in,
// what it records, the named configurations, and the fingerprint that two runs
// of one specification share.
package spec

import (
	"encoding/json"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// MaxSteps bounds the optimizer steps of one run.
const MaxSteps = 1 << 30

// Config is everything that decides a run's numbers; as the lockstep spec of a
// history it replays the run.
type Config struct {
	Model     model.Config `json:"model"`
	Plan      plan.Plan    `json:"plan"`
	Optimizer optim.Config `json:"optimizer"`
	// Sequences is the global batch of a step; 0 is 16.
	Sequences int `json:"sequences"`
	// Blank lists positions of the global batch whose targets are all ignored.
	Blank []int `json:"blank,omitempty"`
	// LastStep says what happens to the sequences left over at the end of an
	// epoch: "drop" (default) or "pad".
	LastStep  data.Policy `json:"last_step"`
	Text      string      `json:"text"`      // name of the text: "default" or a path
	TextHash  string      `json:"text_hash"` // its SHA-256
	Seed      uint64      `json:"seed"`
	Steps     int         `json:"steps"` // 0 is 3
	Backend   string      `json:"backend"`
	Recording Recording   `json:"evidence"`
}

// Recording says how much a run records beyond collectives, phases and scalars.
type Recording struct {
	// Digests records digests of weights, moments and gradients after every
	// step, changed elements, and, at the end, unmoved ones.
	Digests bool `json:"digests"`
	// Workers records the digest of every logical worker's gradient.
	Workers bool `json:"workers"`
	// Capture attaches the elements themselves to the digests of weights,
	// moments and reduced gradients.
	Capture bool `json:"capture,omitempty"`
	// Taps records digests of activations and of their gradients, per block and
	// micro-batch.
	Taps bool `json:"taps,omitempty"`
	// Start attaches the elements to the digests of the state that a run goes on from a
	// checkpoint with, once: what it makes of that state can then be made again.
	Start bool `json:"start,omitempty"`
	// KeepGoing records a difference between replicas and goes on; otherwise the
	// first one is an error on all ranks.
	KeepGoing bool `json:"keep_going,omitempty"`
}

// Validate fills defaults and refuses what does not fit, naming value and rule.
func (c *Config) Validate() error {
	if err := c.fill(); err != nil {
		return err
	}
	return c.Plan.Validate(c.Model, c.Sequences)
}

// Plannable is Validate for a configuration that nobody runs: see
// plan.Plan.Plannable.
func (c *Config) Plannable() error {
	if err := c.fill(); err != nil {
		return err
	}
	return c.Plan.Plannable(c.Model, c.Sequences)
}

// idleWorkers is how many logical workers a run may have whatever its sequences. Of more
// there are as many as these fill: the others have none, in any step, and a worker without
// sequences leaves every sum as it is, but its empty micro-batches take their time.
const idleWorkers = 256

// fill is Validate for all but the plan.
func (c *Config) fill() error {
	if err := c.Model.Validate(); err != nil {
		return err
	}
	if c.Sequences == 0 {
		c.Sequences = 16
	}
	if c.Steps == 0 {
		c.Steps = 3
	}
	if c.LastStep == "" {
		c.LastStep = data.Drop
	}
	if c.Backend == "" {
		c.Backend = "ref"
	}
	if c.Sequences < 1 || c.Sequences > 1<<20 {
		return fmt.Errorf("sequences=%d: must be from 1 to %d", c.Sequences, 1<<20)
	}
	for c.Model.Groups.Data > idleWorkers && c.Model.Groups.Data/2 >= c.Sequences {
		c.Model.Groups.Data /= 2
	}
	if c.Steps < 1 || c.Steps > MaxSteps {
		return fmt.Errorf("steps=%d: must be from 1 to %d", c.Steps, MaxSteps)
	}
	return c.Optimizer.Validate()
}

// Recorded is the configuration as it stands in a history's header.
func (c *Config) Recorded() trace.Spec { return trace.Spec{Lockstep: c.Spec()} }

// Of is the configuration of a training run whose history has the spec s.
func Of(s trace.Spec) (Config, error) {
	if s.Lockstep == nil {
		return Config{}, fmt.Errorf("spec: %s: not of a training run (lockstep)", s.Name())
	}
	return Parse(s.Lockstep)
}

// Spec is the configuration as it is stored, in checkpoints and goldens too.
func (c *Config) Spec() json.RawMessage {
	b, err := json.Marshal(c)
	if err != nil {
		panic("spec: a Config always marshals: " + err.Error()) // plain fields only
	}
	return b
}

// Parse reads and validates what Spec wrote. Fields that it does not have are refused
// by name: what they ask for would not be done.
func Parse(b json.RawMessage) (Config, error) {
	var c Config
	if err := trace.Strict(b, &c); err != nil {
		return c, fmt.Errorf("spec: %w", err)
	}
	return c, c.Validate()
}

// Preset is the named configuration with its batch and optimizer: what train
// and verify start from. The fixtures nano and odd clip in some steps and
// not in others, and odd has one sequence without a valid token in every step.
// Every number of odd's optimizer differs from nano's and from the defaults, so
// that a constant in place of a field changes a result.
func Preset(name string) (Config, error) {
	m, err := model.Named(name)
	if err != nil {
		return Config{}, err
	}
	c := Config{Model: m, Text: "default", Seed: 1}
	c.Optimizer = optim.Config{Name: "adamw"}
	switch m.Name {
	case "nano":
		c.Optimizer.Clip, c.Optimizer.Warmup, c.Optimizer.Horizon = 3.1, 4, 20
	case "odd":
		c.Sequences, c.Blank = 13, []int{5}
		c.Optimizer = optim.Config{Name: "adamw", LR: 2e-3, Beta1: 0.85, Beta2: 0.99, Eps: 1e-6, Momentum: 0.8, Decay: 0.05,
			Clip: 2.7, Warmup: 3, Horizon: 18, MinLR: 1e-4}
	}
	return c, c.Validate()
}

// Set cuts the text into the configuration's sequences.
func (c *Config) Set(text data.Text) (*data.Set, error) {
	return data.New(text, data.Options{SeqLen: c.Model.SeqLen, PerStep: c.Sequences, Vocab: c.Model.Vocab, LastStep: c.LastStep, Blank: c.Blank})
}
