// Package plan is the parallel plan: how many ranks, what each axis does, how
// the global batch is cut. It parses, prints back and validates in one place.
package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// MaxRanks bounds the world of one plan.
const MaxRanks = 1 << 16

// Plan says how training is spread. The zero value of a field is its default.
type Plan struct {
	DP int `json:"dp"` // data-parallel ranks; 0 is 1
	// MicroBatches counts per data-parallel rank and step, a multiple of the
	// logical workers per rank; 0 is one per logical worker.
	MicroBatches int            `json:"microbatches,omitempty"`
	Comm         comm.Algorithm `json:"comm,omitempty"` // "" is tree
}

// Parse reads "dp=4,microbatches=2"; the empty string is one rank. Unknown
// keys, repeated keys and values that are not positive numbers are errors that
// name them.
func Parse(s string) (Plan, error) {
	var p Plan
	seen := map[string]bool{}
	for _, f := range strings.Split(s, ",") {
		if strings.TrimSpace(f) == "" && strings.TrimSpace(s) == "" {
			break
		}
		key, val, ok := strings.Cut(strings.TrimSpace(f), "=")
		if !ok {
			return p, fmt.Errorf("plan %q: %q: want key=value", s, f)
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

func (p *Plan) set(key, val string) error {
	ints := map[string]*int{"dp": &p.DP, "microbatches": &p.MicroBatches}
	if dst, ok := ints[key]; ok {
		n, err := strconv.Atoi(val)
		if err != nil || n < 1 || n > MaxRanks {
			return fmt.Errorf("%s=%s: must be a number from 1 to %d", key, val, MaxRanks)
		}
		*dst = n
		return nil
	}
	switch key {
	case "comm":
		switch a := comm.Algorithm(val); a {
		case comm.Tree, comm.Ring, comm.Star:
			p.Comm = a
			return nil
		}
		return fmt.Errorf("comm=%s: known are tree, ring, star", val)
	}
	return fmt.Errorf("unknown key %q: known are dp, microbatches, comm", key)
}

// String prints the plan in Parse's grammar, defaults left out.
func (p Plan) String() string {
	s := fmt.Sprintf("dp=%d", max(1, p.DP))
	if p.MicroBatches > 0 {
		s += fmt.Sprintf(",microbatches=%d", p.MicroBatches)
	}
	if p.Comm != "" && p.Comm != comm.Tree {
		s += fmt.Sprintf(",comm=%s", p.Comm)
	}
	return s
}

// World is the number of ranks.
func (p Plan) World() int { return max(1, p.DP) }

// Workers is the number of logical workers that the plan computes with: the
// model's Groups.Data where dp divides it, else dp (then equality with one
// worker is bounded, not exact).
func (p Plan) Workers(c model.Config) int {
	if c.Groups.Data%max(1, p.DP) == 0 {
		return c.Groups.Data
	}
	return p.DP
}

// Exact reports whether the plan gives the bits of the single worker.
func (p Plan) Exact(c model.Config) bool {
	return c.Groups.Data%max(1, p.DP) == 0 && (p.Comm == "" || p.Comm == comm.Tree || p.DP <= 1)
}

// Validate fills defaults for model c and a global batch of sequences, and
// refuses what does not fit, naming value and rule.
func (p *Plan) Validate(c model.Config, sequences int) error {
	p.DP = max(1, p.DP)
	if p.Comm == "" {
		p.Comm = comm.Tree
	}
	if p.DP > sequences {
		return fmt.Errorf("plan %s: dp=%d: more ranks than the %d sequences of a step", p, p.DP, sequences)
	}
	per := p.Workers(c) / p.DP
	if p.MicroBatches == 0 {
		p.MicroBatches = per
	}
	if p.MicroBatches%per != 0 {
		return fmt.Errorf("plan %s: microbatches=%d: must be a multiple of %d, the logical workers per data-parallel rank (groups.data=%d over dp=%d)",
			p, p.MicroBatches, per, p.Workers(c), p.DP)
	}
	return nil
}

// RankWorkers is the range of logical workers that a data-parallel rank walks,
// ascending: r*D/dp, r*D/dp+1, ...
func (p Plan) RankWorkers(c model.Config, dpRank int) shard.Range {
	n := p.Workers(c) / max(1, p.DP)
	return shard.Range{Lo: dpRank * n, Hi: (dpRank + 1) * n}
}
