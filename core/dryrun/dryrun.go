// Package dryrun says what a plan would do without doing it: who holds which
// layers and shards, the pipeline schedule, the memory of every rank and the
// bytes that move, from sizes alone. Nothing is allocated and nothing computed,
// so plans of thousands of ranks take seconds; tests hold every figure against
// what real runs allocate and send, to the byte.
//
//	r, err := dryrun.New(cfg)       // a spec.Config with its plan
//	err = r.Text(os.Stdout)         // or JSON: the Report marshals as it is
//
// Bytes are of float32 elements. What a checking run records beyond training
// (copies of weights, exchanged digests) is not counted.
package dryrun

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// elementBytes is the size of an element.
const elementBytes = 4

// Report is what one optimizer step of a plan costs.
type Report struct {
	Model      string `json:"model"`
	Plan       string `json:"plan"`
	Parameters int64  `json:"parameters"` // logical elements, a tied head once
	World      int    `json:"world"`
	// Notes say why the plan cannot be run as it is; none where it can.
	Notes []string `json:"notes,omitempty"`
	// Exact reports whether the plan gives the bits of the single worker.
	Exact   bool `json:"exact"`
	Workers int  `json:"workers"` // logical workers that the sum over data is a tree of
	// MicroBatches counts per data-parallel rank and step; each has at most
	// SequencesPerMicroBatch of the step's Sequences, TokensPerSequence each.
	MicroBatches           int `json:"microbatches"`
	Sequences              int `json:"sequences"`
	SequencesPerMicroBatch int `json:"sequences_per_microbatch"`
	TokensPerSequence      int `json:"tokens_per_sequence"`

	Stages   []Stage   `json:"stages"`
	Tensor   *Tensor   `json:"tensor,omitempty"`   // nil without tensor parallelism
	Schedule *Schedule `json:"schedule,omitempty"` // nil without pipeline
	Ranks    []Ranks   `json:"ranks"`              // kinds of ranks, by their lowest rank
	Bytes    int64     `json:"bytes"`              // Memory.Total of all ranks together
	Memory   Spread    `json:"memory"`             // Memory.Total over ranks
	State    Spread    `json:"state"`              // Memory.State over ranks
	Traffic  []Traffic `json:"traffic"`            // by group, operation and purpose
	// Estimates are of the rank for which each is most.
	Estimates Estimates `json:"estimates"`
}

// Spread is how evenly bytes are spread over all ranks.
type Spread struct {
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
	// MaxOverMean is the true imbalance, 1 where all ranks have equal bytes.
	MaxOverMean float64 `json:"max_over_mean"`
}

// Ranks are the ranks of a stage that hold and send equal amounts.
type Ranks struct {
	Stage int `json:"stage"`
	Count int `json:"count"` // of these ranks
	First int `json:"first"` // the lowest
	// IDs are the world ranks, ascending; left out of worlds of more than
	// plan.MaxRanks.
	IDs    []int                `json:"ids,omitempty"`
	Memory Memory               `json:"memory"`
	Saved  *Saved               `json:"saved,omitempty"` // nil without ZeRO
	Sent   map[names.Axis]int64 `json:"sent,omitempty"`  // bytes per step by group: dp, tp, kv, pp
}

// Traffic is the operations of one kind in a step, over all groups and ranks.
type Traffic struct {
	Group names.Axis `json:"group"` // dp, tp, kv or pp
	Op    string     `json:"op"`
	What  string     `json:"what"`
	// Times counts an operation once for all ranks of its group.
	Times int64 `json:"times"`
	// Bytes is what all ranks together send.
	Bytes int64 `json:"bytes"`
}

// New reports on a configuration, which it validates: of what cannot be run but
// planned it says so in Notes. Figures that no 64-bit integer holds are refused.
func New(cfg spec.Config) (*Report, error) {
	if err := checkSizes(&cfg); err != nil {
		return nil, err
	}
	notes, beyond := planned(&cfg)
	if err := cfg.Plannable(); err != nil {
		return nil, err
	}
	opt, err := optim.New(cfg.Optimizer)
	if err != nil {
		return nil, err
	}
	p := cfg.Plan
	r := &Report{Model: cfg.Model.Name, Plan: p.String(), Parameters: cfg.Model.Params(), World: p.World(), Notes: notes, Exact: !beyond && p.Exact(cfg.Model),
		Workers: p.Workers(cfg.Model), MicroBatches: p.MicroBatches, Sequences: cfg.Sequences,
		SequencesPerMicroBatch: p.MaxSequences(cfg.Model, cfg.Sequences), TokensPerSequence: cfg.Model.SeqLen}
	b := &builder{cfg: cfg, dims: p.Dims(), moments: len(opt.Moments()), seqs: r.SequencesPerMicroBatch, report: r,
		traffic: map[trafficKey]*Traffic{}, kinds: map[string]int{}}
	return r, b.build()
}

// builder collects the report.
type builder struct {
	cfg     spec.Config
	dims    names.Dims
	moments int
	seqs    int // capacity of a micro-batch
	report  *Report
	traffic map[trafficKey]*Traffic
	kinds   map[string]int // index in report.Ranks
	total   []int64        // by rank
	state   []int64
	over    bool // a sum left the 64-bit integers
}

func (b *builder) build() error {
	live, err := b.schedule()
	if err != nil {
		return err
	}
	b.total, b.state = make([]int64, b.dims.World()), make([]int64, b.dims.World())
	for pp := range b.dims.PP {
		for tp := range b.dims.TP {
			chunks, err := b.chunks(pp, tp, live)
			if err != nil {
				return err
			}
			if tp == 0 {
				s, err := b.stage(pp, chunks)
				if err != nil {
					return err
				}
				b.report.Stages = append(b.report.Stages, s)
			}
			for dp := range b.dims.DP {
				if err := b.rank(names.Coord{DP: dp, PP: pp, TP: tp}, chunks); err != nil {
					return err
				}
			}
		}
	}
	if b.report.Tensor, err = b.tensorParallel(); err != nil {
		return err
	}
	b.report.Traffic = b.sortedTraffic()
	if b.over {
		return b.tooMany()
	}
	for i := range b.report.Ranks {
		b.report.Ranks[i].settle(b.dims.World())
	}
	slices.SortFunc(b.report.Ranks, func(x, y Ranks) int { return x.First - y.First })
	b.report.Memory, b.report.State = spread(b.total), spread(b.state)
	return nil
}

// settle orders the ranks and counts them.
func (k *Ranks) settle(world int) {
	slices.Sort(k.IDs)
	k.Count, k.First = len(k.IDs), k.IDs[0]
	if world > plan.MaxRanks {
		k.IDs = nil
	}
}

// chunk is one model part with what does not depend on the data-parallel rank.
type chunk struct {
	layout    model.Layout
	buckets   []parallel.Bucket
	transient transient
	acts      int // elements of one micro-batch's activations
	block     int // of which one block has so many
	fixed     int // elements of tables and scratch
	live      held
}

// chunks lays out the parts of a stage's tensor-parallel rank.
func (b *builder) chunks(pp, tp int, live [][]held) ([]chunk, error) {
	var out []chunk
	for v, part := range b.cfg.Plan.Parts(b.cfg.Model, names.Coord{PP: pp, TP: tp}) {
		c := chunk{layout: model.NewLayout(b.cfg.Model, part), live: live[pp][v]}
		var err error
		if c.buckets, err = parallel.Buckets(b.cfg.Plan, b.cfg.Model, &c.layout); err != nil {
			return nil, err
		}
		c.acts, c.fixed = model.Sizes(b.cfg.Model, part, b.seqs)
		part.Layers.Hi--
		less, _ := model.Sizes(b.cfg.Model, part, b.seqs)
		c.block = c.acts - less
		c.transient = walkPasses(&c.layout, b.cfg.Plan.Zero == 3, b.cfg.Plan.Zero >= 2 && !parallel.WholeGradient(b.cfg.Plan, b.cfg.Model))
		out = append(out, c)
	}
	return out, nil
}

// rank adds one rank to the report.
func (b *builder) rank(at names.Coord, chunks []chunk) error {
	id := b.dims.Rank(at)
	m := b.memory(at.DP, chunks)
	b.total[id], b.state[id] = m.Total, m.State
	b.sum(&b.report.Bytes, m.Total)
	b.report.Estimates.max(b.estimate(&m, at.DP, chunks))
	sent := b.send(at, chunks)
	saved, err := b.saved(at.DP, chunks)
	if err != nil {
		return err
	}
	key := fmt.Sprint(at.PP, m, sent) // fmt prints maps in the order of their keys
	i, known := b.kinds[key]
	if !known {
		i = len(b.report.Ranks)
		b.kinds[key] = i
		b.report.Ranks = append(b.report.Ranks, Ranks{Stage: at.PP, Memory: m, Saved: saved, Sent: sent})
	}
	b.report.Ranks[i].IDs = append(b.report.Ranks[i].IDs, id)
	if b.over {
		return b.tooMany()
	}
	return nil
}

func spread(bytes []int64) Spread {
	s := Spread{Least: bytes[0], MaxOverMean: 1}
	sum := 0.0
	for _, x := range bytes {
		s.Least, s.Most = min(s.Least, x), max(s.Most, x)
		sum += float64(x)
	}
	if sum > 0 {
		s.MaxOverMean = float64(s.Most) * float64(len(bytes)) / sum
	}
	return s
}

// groupOrder is the order of groups in tables.
func groupOrder() []names.Axis { return []names.Axis{names.DP, names.TP, names.KV, names.PP} }

func (b *builder) sortedTraffic() []Traffic {
	rank := func(k trafficKey) int { return slices.Index(groupOrder(), k.group)<<20 + k.order }
	keys := slices.SortedFunc(maps.Keys(b.traffic), func(x, y trafficKey) int { return rank(x) - rank(y) })
	out, all := make([]Traffic, len(keys)), int64(0)
	for i, k := range keys {
		out[i] = *b.traffic[k]
		b.sum(&all, out[i].Bytes) // whoever adds them up gets a number that is right
	}
	return out
}

// operation is one collective or message, as a rank calls it.
type operation struct {
	group    names.Axis
	op, what string
	count    int // elements, as in comm.Record
	times    int64
	part     shard.Part // the rank's place in the group
}

// trafficKey joins operations of one kind; order is where they stand in a table.
type trafficKey struct {
	group names.Axis
	order int
}

// add counts the operation for one rank and returns the bytes that it sends.
func (b *builder) add(order int, o operation) int64 {
	k := trafficKey{o.group, order}
	t := b.traffic[k]
	if t == nil {
		t = &Traffic{Group: o.group, Op: o.op, What: o.what}
		b.traffic[k] = t
	}
	if !b.holds(2*elementBytes, o.times, int64(o.count), int64(o.part.Size)) {
		return 0
	}
	bytes := o.times * comm.ShareBytes(o.op, int64(o.count), o.part)
	if o.part.Index == 0 {
		t.Times += o.times
	}
	b.sum(&t.Bytes, bytes)
	return bytes
}
