package dryrun

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// maxBytes bounds what one rank may need: sums over ranks are checked as they are
// made, products of sizes are not.
const maxBytes = float64(1 << 62)

// MaxLayers bounds the layers of a model that a dry run walks through.
const MaxLayers = 1 << 16

// gib is a GiB.
const gib = 1 << 30

// Fits gives the bytes that those of a configuration's ranks need together which
// are on this host, and an error where that is more than it has; 0 is any number,
// and then the bytes are not counted. here lists them, given the size of the
// world.
func Fits(cfg spec.Config, here func(size int) []int, bytes int64) (need int64, err error) {
	if bytes == 0 {
		return 0, nil
	}
	if err := cfg.Validate(); err != nil {
		return 0, err
	}
	r, err := New(cfg)
	if err != nil {
		return 0, err
	}
	ranks := map[int]bool{}
	for _, id := range here(r.World) {
		ranks[id] = true
	}
	for _, kind := range r.Ranks {
		for _, id := range kind.IDs {
			if ranks[id] {
				need += kind.Memory.Total
			}
		}
	}
	if need > bytes {
		err = fmt.Errorf("%s on %s: %d ranks in one process need %.1f GiB of memory, and it may use %.1f GiB", r.Model, r.Plan, len(ranks), float64(need)/gib, float64(bytes)/gib)
	}
	return need, err
}

// checkSizes refuses models whose layout or bytes do not fit. The estimate is in
// floating point because integers are what it protects.
func checkSizes(cfg *spec.Config) error {
	c := &cfg.Model
	if c.Layers > MaxLayers {
		return fmt.Errorf("model %s: layers=%d: a dry run takes at most %d", c.Name, c.Layers, MaxLayers)
	}
	f := func(n int) float64 { return float64(max(1, n)) }
	widths := float64(f(c.Heads+c.KVHeads)*f(c.HeadDim)) + f(c.Intermediate) + f(c.Hidden)
	weights := float64(4 * f(c.Hidden) * (f(c.Vocab) + float64(f(c.Layers)*widths)))
	// A rank's micro-batches, of at least one sequence, may all be live at once.
	sequences := max(16, cfg.Sequences)/cfg.Plan.Dims().DP + 1
	tokens := float64(f(max(sequences, cfg.Plan.MicroBatches)) * f(c.SeqLen))
	perLayer := float64(4*widths) + float64(f(c.Heads)*f(c.SeqLen))
	acts := float64(tokens * (f(c.Vocab) + float64(f(c.Layers)*perLayer)))
	if total := float64(elementBytes * (float64(64*weights) + float64(8*acts))); !(total < maxBytes) {
		return fmt.Errorf("model %s: about %.2g bytes: a dry run counts up to %.2g", c.Name, total, maxBytes)
	}
	return nil
}

// planned widens the model's groups to a plan that cuts finer than they do, where
// a model can be cut so; beyond says that it did. Notes say what cannot be run.
func planned(cfg *spec.Config) (notes []string, beyond bool) {
	tp, m := cfg.Plan.Dims().TP, cfg.Model
	if m.Validate() == nil && tp > m.Groups.Tensor {
		own := m.Groups.Tensor
		if m.Groups.Tensor = tp; m.Validate() == nil {
			cfg.Model, beyond = m, true
			notes = append(notes, fmt.Sprintf("tp=%d is planned and cannot be run: %s makes its sums over heads, intermediate size and vocabulary as groups.tensor=%d groups, whose bits do not depend on the plan, and no rank has part of a group",
				tp, m.Name, own))
		}
	}
	if n := cfg.Plan.World(); n > plan.MaxRanks {
		notes = append(notes, fmt.Sprintf("%d ranks are planned and cannot be run: at most %d can", n, plan.MaxRanks))
	}
	return notes, beyond
}

// sum adds x, which is not negative, unless the sum is more than 64 bits hold.
func (b *builder) sum(to *int64, x int64) {
	if *to > math.MaxInt64-x {
		b.over = true
		return
	}
	*to += x
}

// holds reports whether the product of counts fits 64 bits, and remembers that
// one did not.
func (b *builder) holds(xs ...int64) bool {
	product := 1.0
	for _, x := range xs {
		product *= float64(x)
	}
	if product >= maxBytes {
		b.over = true
		return false
	}
	return true
}

func (b *builder) tooMany() error {
	return fmt.Errorf("%s on %s: more bytes than a 64-bit integer counts (%.2g)", b.report.Model, b.report.Plan, float64(math.MaxInt64))
}
