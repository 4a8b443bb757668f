package fault

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Family says what kind of part generated faults break.
type Family string

// The families.
const (
	Collectives Family = "collective"
	Bounds      Family = "bound"
	Gradients   Family = "gradient"
	Wrong       Family = "kernel"
	Bits        Family = "bit"
)

// Families lists the families with what each says of its faults.
func Families() []struct {
	Family
	Says string
} {
	return []struct {
		Family
		Says string
	}{
		{Collectives, "a collective that is skipped, doubled, in another group or with another reduction is seen"},
		{Bounds, "a bound that is off by one is seen"},
		{Gradients, "a term of a gradient that is dropped, doubled or scaled is seen"},
		{Wrong, "a kernel that is wrong in one lane is seen"},
		{Bits, "a bit that is flipped anywhere is seen"},
	}
}

// Generated is a fault that nobody thought of: one of all of its kind.
type Generated struct {
	Family Family
	ID     string // "collective:dp=2+zero=1:dp:all-gather:all:skipped": lists of IDs have commas
	Says   string
	Config spec.Config // the run that it breaks
	Fault  Fault
}

// flips is how many random bits are flipped on each plan.
const flips = 30

// plans are those that faults are generated for: every kind of collective, shard
// and stage is in one.
func plans() []string {
	return []string{"dp=2", "dp=2,zero=1", "dp=2,zero=1,shard=balanced", "dp=2,zero=2", "dp=2,zero=3", "tp=2,vocab=parallel", "pp=2", "dp=2,tp=2,pp=2"}
}

// small is the configuration of generated faults: all kinds of parameters, uneven
// sizes, two blocks.
func small(on string) (spec.Config, error) {
	cfg, err := spec.Preset("odd")
	if err != nil {
		return cfg, err
	}
	cfg.Model.Layers, cfg.Model.SeqLen, cfg.Sequences, cfg.Steps = 2, 9, 5, 2
	cfg.Model.QKVBias, cfg.Model.LinearBias = true, true
	cfg.Blank = slices.DeleteFunc(slices.Clone(cfg.Blank), func(i int) bool { return i >= cfg.Sequences })
	cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true, Taps: strings.HasPrefix(on, "tp=")}
	cfg.Plan, err = plan.Parse(on)
	return cfg, err
}

// Generate makes the faults, given what backends are made of: it trains once on
// every plan to see which collectives and gradient terms there are.
func Generate(ctx context.Context, parts launch.Parts) ([]Generated, error) {
	var out []Generated
	for i, on := range plans() {
		cfg, err := small(on)
		if err != nil {
			return nil, err
		}
		seen, err := survey(ctx, cfg, parts)
		if err != nil {
			return nil, fmt.Errorf("faults on %s: %w", on, err)
		}
		g := &generator{on: on, cfg: cfg}
		for _, k := range seen.kinds() {
			g.collective(k)
			g.bounds(k)
		}
		g.shards()
		if on == "dp=2" || on == "tp=2,vocab=parallel" {
			for _, t := range seen.gradients() {
				g.gradient(t)
			}
			for _, l := range Lanes() {
				if l.Kernel == "HashChanged" && cfg.Plan.DP == 0 {
					continue // what changed is read of data-parallel plans only
				}
				g.add(Wrong, fmt.Sprintf("%s.%d", l.Kernel, l.Output), WrongLane(l), "output %d of %s is wrong in its last element", l.Output, l.Kernel)
			}
		}
		r := rand.New(rand.NewPCG(1, uint64(i)))
		for n := range flips {
			a := DrawAnywhere(r, cfg.Plan.World(), seen.products(cfg.Plan.World()))
			g.add(Bits, fmt.Sprint(n), FlipAnywhere(a), "%s is flipped, once", a)
		}
		out = append(out, g.all...)
	}
	slices.SortStableFunc(out, func(a, b Generated) int { return cmp.Compare(rank(a.Family), rank(b.Family)) })
	return out, nil
}

// rank is the place of a family in their order.
func rank(f Family) int {
	for i, x := range Families() {
		if x.Family == f {
			return i
		}
	}
	return len(Families())
}

// generator makes the faults of one plan.
type generator struct {
	on  string
	cfg spec.Config
	all []Generated
}

func (g *generator) add(f Family, id string, fault Fault, says string, args ...any) {
	g.all = append(g.all, Generated{Family: f, ID: fmt.Sprintf("%s:%s:%s", f, strings.ReplaceAll(g.on, ",", "+"), id), Says: fmt.Sprintf(says, args...), Config: g.cfg, Fault: fault})
}

// survey trains cfg and notes what is done.
func survey(ctx context.Context, cfg spec.Config, parts launch.Parts) (*surveyed, error) {
	s := &surveyed{kindsSeen: map[kind]bool{}, terms: map[term]bool{}, counts: map[int]int{}}
	s.watch(&parts)
	_, err := launch.Local(ctx, cfg, data.Default(), parts)
	return s, err
}
