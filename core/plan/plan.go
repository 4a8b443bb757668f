// Package plan is the parallel plan: how many ranks on which axis, how the
// global batch is cut, how state is sharded. It parses, prints back and
// validates in one place.
package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// MaxRanks bounds the world of a plan that is run, MaxPlanned that of one that is
// only planned (dry run).
const (
	MaxRanks   = 1 << 16
	MaxPlanned = 1 << 20
)

// How optimizer state, and in stage 3 parameters, are sharded.
const (
	ShardFlat       = "flat"        // contiguous elements by the shard rule within each sharding unit
	ShardRoundRobin = "round-robin" // stage 1: block i of a pipeline stage belongs to rank i mod dp
	ShardContiguous = "contiguous"  // stage 1: contiguous blocks
	ShardBalanced   = "balanced"    // stage 1: greedy by size
	ShardTensors    = "tensors"     // stage 3: whole tensors, round-robin
)

// Pipeline schedules.
const (
	OneF1B      = "1f1b"
	GPipe       = "gpipe"
	Interleaved = "interleaved"
)

// How embedding and head lie over the tensor-parallel ranks.
const (
	VocabReplicated = "replicated"
	VocabParallel   = "parallel"
)

// Plan says how training is spread. The zero value of a field is its default.
type Plan struct {
	DP int `json:"dp"` // data-parallel ranks; 0 is 1
	TP int `json:"tp"` // tensor-parallel ranks; 0 is 1
	PP int `json:"pp"` // pipeline stages; 0 is 1
	// Zero is the ZeRO stage over the data-parallel axis, 0 to 3.
	Zero  int    `json:"zero,omitempty"`
	Shard string `json:"shard,omitempty"` // "" is flat
	// MicroBatches counts per data-parallel rank and step, a multiple of the
	// logical workers per rank; 0 is one per logical worker.
	MicroBatches int             `json:"microbatches,omitempty"`
	Schedule     string          `json:"schedule,omitempty"` // "" is 1f1b
	Virtual      int             `json:"virtual,omitempty"`  // chunks per stage of the interleaved schedule; 0 is 1
	Vocab        string          `json:"vocab,omitempty"`    // "" is replicated
	Comm         names.Algorithm `json:"comm,omitempty"`     // "" is tree
}

// Keys lists the keys of the grammar.
const Keys = "dp, tp, pp, zero, shard, microbatches, schedule, virtual, vocab, comm"

// Parse reads "dp=4,zero=1,microbatches=2"; the empty string is one rank.
// Unknown or repeated keys and values outside their range are errors that name
// them.
func Parse(s string) (Plan, error) {
	p := Plan{}
	seen := map[string]bool{}
	if strings.TrimSpace(s) == "" {
		return p, nil
	}
	for _, f := range strings.Split(s, ",") {
		key, val, ok := strings.Cut(strings.TrimSpace(f), "=")
		if !ok {
			return p, fmt.Errorf("plan %q: %q: want key=value", s, f)
		}
		if parts := withCommas(f); strings.Contains(parts, ",") {
			return p, fmt.Errorf("plan %q: %q: commas separate the parts of a plan, as in %s", s, f, withCommas(s))
		}
		if seen[key] {
			return p, fmt.Errorf("plan %q: %s is given twice", s, key)
		}
		seen[key] = true
		if err := p.set(key, val); err != nil {
			return p, fmt.Errorf("plan %q: %w", s, err)
		}
	}
	return p, nil
}

// withCommas is a text with a comma for whatever separates its parts.
func withCommas(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t\n,;:+&/", r) }), ",")
}

func (p *Plan) set(key, val string) error {
	type number struct {
		dst    *int
		lo, hi int
	}
	if n, ok := map[string]number{
		"dp": {&p.DP, 1, MaxPlanned}, "tp": {&p.TP, 1, MaxPlanned}, "pp": {&p.PP, 1, MaxPlanned}, "zero": {&p.Zero, 0, 3},
		"microbatches": {&p.MicroBatches, 1, 1 << 20}, "virtual": {&p.Virtual, 1, 1 << 10},
	}[key]; ok {
		v, err := strconv.Atoi(val)
		if err != nil || v < n.lo || v > n.hi {
			return fmt.Errorf("%s=%s: must be a number from %d to %d", key, val, n.lo, n.hi)
		}
		*n.dst = v
		return nil
	}
	type word struct {
		dst   *string
		known []string
	}
	algorithm := ""
	if w, ok := map[string]word{
		"shard":    {&p.Shard, []string{ShardFlat, ShardRoundRobin, ShardContiguous, ShardBalanced, ShardTensors}},
		"schedule": {&p.Schedule, []string{OneF1B, GPipe, Interleaved}},
		"vocab":    {&p.Vocab, []string{VocabReplicated, VocabParallel}},
		"comm":     {&algorithm, []string{string(names.Tree), string(names.Ring), string(names.Star), string(names.MPI)}},
	}[key]; ok {
		for _, k := range w.known {
			if k == val {
				*w.dst = val
				if algorithm != "" {
					p.Comm = names.Algorithm(algorithm)
				}
				return nil
			}
		}
		return fmt.Errorf("%s=%s: known are %s", key, val, strings.Join(w.known, ", "))
	}
	return fmt.Errorf("unknown key %q: known are %s", key, Keys)
}

// defaults fills in what the zero values mean.
func (p *Plan) defaults() {
	p.DP, p.TP, p.PP, p.Virtual = max(1, p.DP), max(1, p.TP), max(1, p.PP), max(1, p.Virtual)
	for _, d := range []struct {
		dst *string
		def string
	}{{&p.Shard, ShardFlat}, {&p.Schedule, OneF1B}, {&p.Vocab, VocabReplicated}} {
		if *d.dst == "" {
			*d.dst = d.def
		}
	}
	if p.Comm == "" {
		p.Comm = names.Tree
	}
}

// String prints the plan in Parse's grammar, defaults left out but for dp.
func (p Plan) String() string {
	p.defaults()
	s := fmt.Sprintf("dp=%d", p.DP)
	for _, n := range []struct {
		key    string
		v, def int
	}{{"tp", p.TP, 1}, {"pp", p.PP, 1}, {"zero", p.Zero, 0}} {
		if n.v != n.def {
			s += fmt.Sprintf(",%s=%d", n.key, n.v)
		}
	}
	if p.Shard != ShardFlat {
		s += ",shard=" + p.Shard
	}
	if p.MicroBatches > 0 {
		s += fmt.Sprintf(",microbatches=%d", p.MicroBatches)
	}
	if p.Schedule != OneF1B {
		s += ",schedule=" + p.Schedule
	}
	if p.Virtual != 1 {
		s += fmt.Sprintf(",virtual=%d", p.Virtual)
	}
	if p.Vocab != VocabReplicated {
		s += ",vocab=" + p.Vocab
	}
	if p.Comm != names.Tree {
		s += ",comm=" + string(p.Comm)
	}
	return s
}

// Dims are the axes of the plan's mesh.
func (p Plan) Dims() names.Dims {
	p.defaults()
	return names.Dims{DP: p.DP, PP: p.PP, TP: p.TP}
}

// World is the number of ranks.
func (p Plan) World() int { return p.Dims().World() }

// Workers is the number of logical workers that the plan computes with: the
// model's Groups.Data where dp divides it, else dp (then equality with one
// worker is bounded, not exact).
func (p Plan) Workers(c model.Config) int {
	if c.Groups.Data%max(1, p.DP) == 0 {
		return c.Groups.Data
	}
	return p.DP
}

// RankWorkers lists the logical workers that a data-parallel rank walks, in
// order: r*D/dp, r*D/dp+1, ... for DDP and ZeRO-1; r, r+dp, ... for stages 2
// and 3, where every round of workers is reduce-scattered.
func (p Plan) RankWorkers(c model.Config, dpRank int) []int {
	dp := max(1, p.DP)
	n := p.Workers(c) / dp
	out := make([]int, n)
	for i := range out {
		if p.Zero >= 2 {
			out[i] = dpRank + i*dp
		} else {
			out[i] = dpRank*n + i
		}
	}
	return out
}

// MaxSequences is the largest micro-batch, in sequences, that a valid plan cuts
// a global batch into.
func (p Plan) MaxSequences(c model.Config, sequences int) int {
	d := p.Workers(c)
	worker := (sequences + d - 1) / d
	per := p.MicroBatches / len(p.RankWorkers(c, 0))
	return (worker + per - 1) / per
}

// Parts lists the model parts of a rank: one, or one per chunk of the
// interleaved schedule, in the order of the layers.
func (p Plan) Parts(c model.Config, at names.Coord) []model.Part {
	p.defaults()
	out := make([]model.Part, p.Virtual)
	stages := p.PP * p.Virtual
	for v := range out {
		s := shard.VirtualStage(at.PP, v, p.PP)
		out[v] = model.Part{Layers: shard.Part{Index: s, Size: stages}.Of(c.Layers), First: s == 0, Last: s == stages-1,
			Tensor: shard.Part{Index: at.TP, Size: p.TP}, VocabParallel: p.Vocab == VocabParallel && p.TP > 1}
	}
	return out
}

// KVReplicas is how many tensor-parallel neighbours hold the same KV head.
func (p Plan) KVReplicas(c model.Config) int {
	return shard.TensorParallel{Size: p.Dims().TP, KVHeads: c.KVHeads}.KVReplicas()
}

// checkValues refuses what Parse would refuse in a plan that was not parsed.
func (p *Plan) checkValues() error {
	for _, n := range []struct {
		key string
		v   int
	}{{"dp", p.DP}, {"tp", p.TP}, {"pp", p.PP}, {"microbatches", p.MicroBatches}, {"virtual", p.Virtual}} {
		if n.v < 0 {
			return fmt.Errorf("plan: %s=%d: must not be negative", n.key, n.v)
		}
	}
	_, err := Parse(p.String())
	return err
}

// Validate fills defaults for a valid model c and a global batch of sequences,
// and refuses what does not fit or cannot be run, naming value and rule.
func (p *Plan) Validate(c model.Config, sequences int) error {
	if err := p.Plannable(c, sequences); err != nil {
		return err
	}
	if p.World() > MaxRanks {
		return fmt.Errorf("plan %s: %d ranks: at most %d are run; a dry run plans up to %d", p, p.World(), MaxRanks, MaxPlanned)
	}
	return nil
}

// Plannable is Validate for a plan that nobody runs: it may have more ranks.
func (p *Plan) Plannable(c model.Config, sequences int) error {
	if err := p.checkValues(); err != nil {
		return err
	}
	p.defaults()
	bad := func(format string, args ...any) error {
		return fmt.Errorf("plan %s: "+format, append([]any{p}, args...)...)
	}
	per := p.Workers(c) / p.DP
	given := p.MicroBatches
	if p.MicroBatches == 0 {
		p.MicroBatches = per
	}
	switch {
	case p.World() > MaxPlanned: // factors of 20 bits at most: no overflow
		return bad("more than %d ranks", MaxPlanned)
	case p.DP > sequences:
		return bad("dp=%d: more ranks than the %d sequences of a step", p.DP, sequences)
	case c.Groups.Tensor%p.TP != 0:
		return bad("tp=%d: must divide groups.tensor=%d of model %s: sums over heads, intermediate size and vocabulary are made as that many groups, so that every tp that cuts between groups has the same bits",
			p.TP, c.Groups.Tensor, c.Name)
	case p.PP*p.Virtual > c.Layers:
		return bad("pp=%d, virtual=%d: more stages than the %d layers of model %s", p.PP, p.Virtual, c.Layers, c.Name)
	case p.Virtual > 1 && p.Schedule != Interleaved:
		return bad("virtual=%d: needs schedule=interleaved", p.Virtual)
	case p.Schedule == Interleaved && (p.Virtual < 2 || p.PP < 2):
		return bad("schedule=interleaved: needs virtual=2 or more and pp=2 or more")
	case (p.Shard == ShardRoundRobin || p.Shard == ShardContiguous || p.Shard == ShardBalanced) && p.Zero != 1:
		return bad("shard=%s: needs zero=1", p.Shard)
	case p.Shard == ShardTensors && p.Zero != 3:
		return bad("shard=%s: needs zero=3", p.Shard)
	case given%per != 0:
		return bad("microbatches=%d: must be a multiple of %d, the logical workers per data-parallel rank (groups.data=%d over dp=%d)",
			given, per, p.Workers(c), p.DP)
	}
	return nil
}
