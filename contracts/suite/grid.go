package suite

import (
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Fixture is a configuration and the plans that a contract runs on it by
// default.
type Fixture struct {
	Config string
	Steps  int
	Plans  []string           // a case each; one that changes its plan has Then between them
	Change func(*spec.Config) // of the preset; nil for none
	Suffix string             // of the case names, where more than the plan tells a case from others
	// Epoch, unless 0, is the number of whole steps after which the text begins anew: the
	// options' text is cut there, with half a step more. Options may make such a run
	// longer, not shorter.
	Epoch int
	// At is where the runs begin, and Steps how many they take from there.
	At Later
}

// Level picks the fixtures of a level: few at 1, many from 2 on, and from 3 on also
// the long ones.
func Level(level int, few, many []Fixture, long ...Fixture) []Fixture {
	switch {
	case level <= 1:
		return few
	case level == 2:
		return many
	}
	return append(many, long...)
}

// Epochs are how a case ends that goes on past the end of its text.
const Epochs = " over an epoch"

// Then stands between the plans of a case that goes on with another plan.
const Then = " then "

// Grid is a contract's cases as data.
type Grid struct {
	// Fixtures are the default cases of a level.
	Fixtures func(level int) []Fixture
	// Named is what runs on a configuration that was asked for.
	Named func(config string, level int) Fixture
	// Prepare changes every configuration before its fixture does; nil for nothing.
	Prepare func(o Options, cfg *spec.Config)
	// Exact leaves out plans that do not promise the single worker's bits.
	Exact bool
	// With lists the cases that a plan which was asked for takes part in; nil is the plan
	// alone. It is for exact grids.
	With func(p string) []string
	// Runs are those of a case, given the configuration on its plans.
	Runs func(o Options, f Fixture, on ...spec.Config) map[contract.Role]Run
	// Clauses that the cases are evidence for; nil is all of the contract's.
	Clauses []string
}

// Cases makes the cases of options: those of their level and, by name, what the
// levels below have besides. Where two levels have one, it is the higher one's.
func (g *Grid) Cases(o Options) []Case {
	if g.Exact && Foreign(o) {
		return nil
	}
	out := g.at(o, o.Level)
	for level := o.Level - 1; level > 0; level-- {
		for _, c := range g.at(o, level) {
			if !slices.ContainsFunc(out, func(has Case) bool { return has.Name == c.Name }) {
				out = append(out, c)
			}
		}
	}
	return out
}

// at makes the cases of the fixtures of a level.
func (g *Grid) at(o Options, level int) []Case {
	var out []Case
	for _, f := range g.choose(o, level) {
		cfg, err := Preset(f.Config, o, f.Steps)
		if err != nil {
			return []Case{Broken("options", err)}
		}
		if g.Prepare != nil {
			g.Prepare(o, &cfg)
		}
		if f.Change != nil {
			f.Change(&cfg)
		}
		if f.Epoch > 0 {
			cfg.Steps = max(cfg.Steps, f.Steps)
			if cfg.Text, err = excerpt(o.Text, cfg, f.Epoch); err != nil {
				return []Case{Broken("options", err)}
			}
		}
		if f.At.Step > 0 {
			f.At.Until(&cfg, max(o.Steps, f.Steps))
		}
		for _, texts := range f.Plans {
			on, err := g.on(cfg, strings.Split(texts, Then))
			if err != nil {
				return []Case{Broken("options", err)}
			}
			if on == nil {
				continue
			}
			name := Name(on[0])
			for _, next := range on[1:] {
				name += Then + next.Plan.String()
			}
			out = append(out, Case{Name: name + f.Suffix, Clauses: g.Clauses, Runs: g.Runs(o, f, on...)})
		}
	}
	return out
}

// excerpt names the beginning of a text that makes so many steps of a configuration
// and half of another; the whole text where it makes no more.
func excerpt(t data.Text, cfg spec.Config, steps int) (string, error) {
	if len(t.Bytes) == 0 {
		return cfg.Text, nil
	}
	need := steps*cfg.Sequences + cfg.Sequences/2
	cfg.LastStep = data.Drop
	for n := need * (cfg.Model.SeqLen + 2); ; n *= 2 {
		set, err := cfg.Set(t.Head(n))
		switch {
		case n >= len(t.Bytes) && (err != nil || set.Len() <= need):
			return cfg.Text, err
		case err == nil && set.Len() > need:
			return t.Head(set.End(need)).Name, nil
		}
	}
}

// on is a configuration on plans; nil where it may not run on one of them.
func (g *Grid) on(cfg spec.Config, plans []string) ([]spec.Config, error) {
	if g.Exact && len(Exact(cfg, plans)) < len(plans) {
		return nil, nil
	}
	all, err := Plans(plans)
	var out []spec.Config
	for _, p := range all {
		out = append(out, compare.On(cfg, p))
	}
	return out, err
}

// choose applies the options' configuration and plans. Plans without a
// configuration run on those of level 1, larger ones only on their own.
func (g *Grid) choose(o Options, level int) []Fixture {
	all := g.Fixtures(level)
	if o.Config != "" {
		all = []Fixture{g.Named(o.Config, level)}
	}
	if len(o.Plans) == 0 {
		return all
	}
	var asked []Fixture
	for _, f := range all {
		f.Plans = g.asked(o, f)
		again := !g.Exact && slices.ContainsFunc(asked, func(a Fixture) bool { return a.Config == f.Config })
		if len(f.Plans) > 0 && !again {
			asked = append(asked, f)
		}
	}
	return asked
}

// asked lists what was asked for and runs on a fixture.
func (g *Grid) asked(o Options, f Fixture) []string {
	if g.Exact {
		cfg, err := o.Base(f.Config)
		if err != nil {
			return nil
		}
		var out []string
		for _, text := range o.Plans {
			switch p := Exact(cfg, []string{text}); {
			case len(p) == 0:
			case g.With == nil:
				out = append(out, text)
			default:
				out = append(out, g.With(p[0].String())...)
			}
		}
		return out
	}
	small := slices.ContainsFunc(g.Fixtures(1), func(s Fixture) bool { return s.Config == f.Config })
	if o.Config != "" || f.Change == nil && small && fit(o, f.Config) {
		return o.Plans
	}
	return nil
}

// fit reports whether all plans of options can run on a configuration.
func fit(o Options, config string) bool {
	cfg, err := o.Base(config)
	all, perr := Plans(o.Plans)
	return err == nil && perr == nil &&
		!slices.ContainsFunc(all, func(p plan.Plan) bool { return p.Validate(cfg.Model, cfg.Sequences) != nil })
}

// Beside makes the runs of a case that is compared with a control, which control
// derives from the configuration on its plan.
func Beside(control func(spec.Config) spec.Config) func(Options, Fixture, ...spec.Config) map[contract.Role]Run {
	return func(o Options, _ Fixture, on ...spec.Config) map[contract.Role]Run {
		return map[contract.Role]Run{contract.Test: Train(on[0], o), contract.Control: Train(control(on[0]), o)}
	}
}
