// Package evidence reads training histories for the clauses of contracts: it
// knows what a run's spec implies, finds the events by what they are about, and
// says where two of them differ. It judges nothing.
package evidence

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Tensor is a tensor that digests are about.
type Tensor struct {
	Name string
	Unit string // sharding unit
	Len  int64  // elements of the logical tensor
}

// Named are the tensors whose names a function selects; nil selects all.
func Named(all []Tensor, names func(string) bool) []Tensor {
	if names == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(t Tensor) bool { return !names(t.Name) })
}

// Run is a training history with what its spec implies.
type Run struct {
	*trace.History
	Config spec.Config
	// Clauses go through the configured steps from First to before Steps, up to the
	// last of which anything is recorded (StepsOf); what lacks Read counts and doubts.
	// First is 0 but where the run goes on from a checkpoint, whose state the digests of
	// the step before First are; Taken is how many optimizer steps were taken by then.
	First, Taken, Steps int
	// Params are the parameters in layout order; Sources those whose gradient
	// every logical worker computes: a tied head is a source beside the
	// embedding.
	Params, Sources []Tensor
	// Workers is the number of logical workers that the plan computes with.
	Workers int

	units   []string // in layout order
	owners  []int    // by logical worker: the data-parallel rank that computes it
	digests map[about]trace.Event
	counts  bool           // some digest is marked to count once
	somehow map[about]bool // what some rank, -1 here, has a digest of
	scalars map[about]trace.Event
	changed map[about]trace.Event // changed and unmoved elements; what is the kind
	// captured are the digests that have elements, one by one.
	captured map[about][]trace.Event
	// steps are the places of a rank's events of a step among all of its: whoever goes
	// through the steps must not go through all events in each.
	steps map[stepOf][]int32

	misfit, idle, torn, beyond, unplanned func() string // Misfit, Idle, Torn, Beyond and Unplanned, once
	held                                  func() map[string][]Holding
}

// Read indexes the history of a role. Where it is missing, or its spec is not
// one of training, the pass doubts and ok is false. Of a run that is Idle the pass
// doubts: nothing that two such runs make true is held.
// One that goes on from a checkpoint owes nothing of the steps before. Where the
// record does not say where the run begins or ends the pass doubts and ok is false.
func Read(p *contract.Pass, role contract.Role) (r *Run, ok bool) {
	r, ok = ReadResumed(p, role)
	if ok {
		if torn := r.torn(); torn != "" {
			p.Doubt("%s run: %s", role, torn)
			return nil, false
		}
	}
	return r, ok
}

// ReadResumed is Read for clauses about resumption, which judge where ranks go on.
func ReadResumed(p *contract.Pass, role contract.Role) (r *Run, ok bool) {
	h, ok := p.History(role)
	if !ok {
		return nil, false
	}
	made, err := p.Once(h, func() (any, error) { return New(h) })
	if err != nil {
		p.Doubt("%s run: %v", role, err)
		return nil, false
	}
	r = made.(*Run)
	if beyond := r.beyond(); beyond != "" {
		p.Doubt("%s run: %s", role, beyond)
		return nil, false
	}
	r.owe(p, role)
	if role == contract.Test {
		for _, why := range []string{r.misfit(), r.unplanned()} {
			if why != "" {
				p.Doubt("%s run: %s", role, why)
			}
		}
	}
	if idle := r.idle(); idle != "" {
		p.Doubt("%s run: %s", role, idle)
	}
	return r, true
}

// New indexes a training history.
func New(h *trace.History) (*Run, error) {
	cfg, err := spec.Of(h.Header.Spec)
	if err != nil {
		return nil, err
	}
	if w := cfg.Plan.World(); w != h.Header.World {
		return nil, fmt.Errorf("a world of %d ranks, but plan %s has %d", h.Header.World, cfg.Plan, w)
	}
	if err := Bounded(h, cfg); err != nil {
		return nil, err
	}
	first, taken := Resumed(h)
	r := &Run{History: h, Config: cfg, First: first, Taken: taken, Steps: StepsOf(h, cfg, first), Workers: cfg.Plan.Workers(cfg.Model)}
	r.owners = make([]int, r.Workers)
	for rank := range max(1, cfg.Plan.DP) {
		for _, w := range cfg.Plan.RankWorkers(cfg.Model, rank) {
			r.owners[w] = rank
		}
	}
	r.held = sync.OnceValue(r.holdings)
	r.misfit, r.idle = sync.OnceValue(r.Misfit), sync.OnceValue(r.Idle)
	r.unplanned = sync.OnceValue(r.Unplanned)
	r.torn, r.beyond = sync.OnceValue(r.Torn), sync.OnceValue(r.Beyond)
	r.readLayout()
	r.index()
	return r, nil
}

func (r *Run) readLayout() {
	l := model.NewLayout(r.Config.Model, model.Whole(r.Config.Model))
	for i := range l.Params {
		p := &l.Params[i]
		t := Tensor{p.Name, l.Units[p.Unit].Name, int64(p.Len())}
		r.Sources = append(r.Sources, t)
		if p.Off < l.Owned {
			r.Params = append(r.Params, t)
		}
	}
	for _, u := range l.Units {
		r.units = append(r.units, u.Name)
	}
}

// Len is the number of steps that clauses go through.
func (r *Run) Len() int { return r.Steps - r.First }

// Moments names the optimizer state per element: m and v of AdamW, the momentum
// of SGD.
func (r *Run) Moments() []string {
	if r.Config.Optimizer.Name == "sgd" {
		return []string{trace.Momentum}
	}
	return []string{trace.MomentM, trace.MomentV}
}

// State names what every replica holds per element: weights and moments.
func (r *Run) State() []string { return append([]string{trace.Weight}, r.Moments()...) }

// Working is the number of logical workers that have sequences in every step, the
// first ones: worker w takes sequences w, w+W, w+2W, ... of the batch.
func (r *Run) Working() int { return min(r.Workers, r.Config.Sequences) }

// Busy reports whether a logical worker is one of these.
func (r *Run) Busy(worker int) bool { return worker < r.Working() }

// Graded is the number of logical workers whose own gradients the run records:
// all that have sequences, or none.
func (r *Run) Graded() int {
	if !r.Config.Recording.Workers {
		return 0
	}
	return r.Working()
}

// LastStage reports whether a rank is on the last pipeline stage, which alone
// has the loss.
func (r *Run) LastStage(rank int) bool { return r.At(rank).PP == r.Config.Plan.Dims().PP-1 }

// Owner is the data-parallel rank that computes a logical worker.
func (r *Run) Owner(worker int) int { return r.owners[worker] }

// Exact reports whether the plan promises the bits of the single worker.
func (r *Run) Exact() bool { return r.Config.Plan.Exact(r.Config.Model) }

// SameTask reports whether two runs train the same model on the same batches in
// the same way, whatever their plans; otherwise it names what differs.
func SameTask(a, b *Run) error {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"arithmetic", a.Header.Arithmetic, b.Header.Arithmetic},
		{"model", a.Config.Model, b.Config.Model},
		{"optimizer", a.Config.Optimizer, b.Config.Optimizer},
		{"sequences", a.Config.Sequences, b.Config.Sequences},
		{"blank", fmt.Sprint(a.Config.Blank), fmt.Sprint(b.Config.Blank)},
		{"last_step", a.Config.LastStep, b.Config.LastStep},
		{"text_hash", a.Config.TextHash, b.Config.TextHash},
		{"seed", a.Config.Seed, b.Config.Seed},
	} {
		if f.a != f.b {
			return fmt.Errorf("the runs differ in %s: %v and %v", f.name, f.a, f.b)
		}
	}
	return nil
}
