// Package train wires model, plan, optimizer and data into ranks, runs the
// optimizer steps and records the history.
package train

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Text is a training text.
type Text = data.Text

// MaxSteps bounds the optimizer steps of one run.
const MaxSteps = 1 << 30

// Config is everything that decides a run's numbers; as the history's Spec it
// replays the run.
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
	LastStep data.Policy `json:"last_step"`
	Text     string      `json:"text"`      // name of the text: "default" or a path
	TextHash string      `json:"text_hash"` // its SHA-256
	Seed     uint64      `json:"seed"`
	Steps    int         `json:"steps"` // 0 is 3
	Backend  string      `json:"backend"`
	Evidence Evidence    `json:"evidence"`
}

// Evidence says how much a run records beyond collectives, phases and scalars.
type Evidence struct {
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
	// KeepGoing records a difference between replicas and goes on; otherwise the
	// first one is an error on all ranks.
	KeepGoing bool `json:"keep_going,omitempty"`
}

// Validate fills defaults and refuses what does not fit, naming value and rule.
func (c *Config) Validate() error {
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
	if c.Steps < 1 || c.Steps > MaxSteps {
		return fmt.Errorf("steps=%d: must be from 1 to %d", c.Steps, MaxSteps)
	}
	if err := c.Optimizer.Validate(); err != nil {
		return err
	}
	return c.Plan.Validate(c.Model, c.Sequences)
}

// Spec is the configuration as it stands in a history's header.
func (c *Config) Spec() json.RawMessage {
	b, err := json.Marshal(c)
	if err != nil {
		panic("train: a Config always marshals: " + err.Error()) // plain fields only
	}
	return b
}

// ParseSpec reads and validates what Spec wrote.
func ParseSpec(b json.RawMessage) (Config, error) {
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("spec: %w", err)
	}
	return c, c.Validate()
}

// Preset is the named configuration with its batch and optimizer: what train
// and verify start from. The fixtures nano and odd clip in some steps and
// not in others, and odd has one sequence without a valid token in every step.
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
		c.Optimizer.Clip, c.Optimizer.Warmup, c.Optimizer.Horizon = 2.7, 4, 20
	}
	return c, c.Validate()
}

// Parts are the makers of what a run is built from, each called once per rank.
// Nil fields other than Backend mean "as is". Faults attach here, from outside:
// production code has no switch for them.
type Parts struct {
	// Backend makes rank's backend. Ranks may share one.
	Backend func(rank int) (kernels.Backend, error)
	// Comm decorates each of rank's communicators, outside the recorded one;
	// group is "world", "dp", "tp", "kv" or "pp". The data-parallel group has two,
	// one of which works beside the computation.
	Comm func(rank int, group string, c comm.Communicator) comm.Communicator
	// Optimizer decorates rank's optimizer.
	Optimizer func(rank int, o optim.Optimizer) optim.Optimizer
	// Source decorates rank's data.
	Source func(rank int, s Source) Source
	// Schedule changes the pipeline schedule that rank follows.
	Schedule func(rank int, s schedule.Schedule) schedule.Schedule
	// Segments changes how rank cuts the state of each of its model parts over
	// the data-parallel ranks.
	Segments func(rank int, segs []parallel.Segment) []parallel.Segment
	// Updater decorates the owner of each of rank's model parts.
	Updater func(rank int, u parallel.Updater) parallel.Updater
	// Counter changes how many optimizer steps rank believes to have taken,
	// after each step, also one that was skipped.
	Counter func(rank, taken int) int
	// Config changes what this rank believes the configuration to be; the
	// history's header keeps the true one.
	Config func(rank int, c Config) Config
	// Checkpoints says where state is stored and loaded.
	Checkpoints Checkpoints
	// Deadline bounds how long an operation waits for a peer; 0 is an hour: a
	// peer of this process that ends or fails is noticed at once, and one that
	// computes may take long.
	Deadline time.Duration
	// Keep, where not nil, says which events are kept in the history.
	Keep func(trace.Event) bool
	// Progress is called after every step by the first rank of the last stage,
	// which has the loss; nil for none.
	Progress func(Progress)
}

// defaultDeadline is Parts.Deadline's default.
const defaultDeadline = time.Hour

// Source gives a rank its sequences.
type Source interface {
	// Sequences returns the sequences of a logical worker in a step, and their
	// ids (-1 for padding).
	Sequences(step, worker, workers int) ([]data.Sequence, []int64)
}

// Progress is what a run tells after each step.
type Progress struct {
	Step, Steps int
	Loss        float64
	Norm        float64
	Tokens      int64 // valid tokens of the step
	Elapsed     time.Duration
	Skipped     bool
}
