package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Fixture is a configuration and the plans that a contract runs on it by
// default.
type Fixture struct {
	Config string
	Steps  int
	Plans  []string
	Change func(*spec.Config) // of the preset; nil for none
	Suffix string             // of the case names, where the preset is changed
}

// Choose applies the options' configuration and plans to a contract's fixtures
// of a level: a configuration that was asked for runs the plans that byConfig
// says it allows, and plans that were asked for run on the first fixture of each
// configuration that they fit.
func Choose(o Options, fixtures func(level int) []Fixture, byConfig func(config string) []string) []Fixture {
	if o.Config == "" && len(o.Plans) == 0 {
		return fixtures(o.Level)
	}
	if o.Config != "" {
		return []Fixture{{Config: o.Config, Steps: 2, Plans: byConfig(o.Config)}}
	}
	var out []Fixture
	for _, f := range fixtures(o.Level) {
		if f.Change == nil && Fit(f.Config, o) {
			out = append(out, f)
		}
	}
	return out
}

// WithUnsplit makes a case of every plan of the fixtures, beside its control
// with the whole model on every rank. prepare changes each preset first; nil for nothing.
func WithUnsplit(o Options, fixtures []Fixture, prepare func(*spec.Config)) []Case {
	var out []Case
	for _, f := range fixtures {
		cfg, err := Preset(f.Config, o, f.Steps)
		plans, perr := Plans(o, f.Plans...)
		if err == nil {
			err = perr
		}
		if err != nil {
			return []Case{Broken("options", err)}
		}
		for _, change := range []func(*spec.Config){prepare, f.Change} {
			if change != nil {
				change(&cfg)
			}
		}
		for _, p := range plans {
			one := compare.On(cfg, p)
			out = append(out, Case{Name: Name(one) + f.Suffix, Runs: map[contract.Role]Run{
				contract.Test:    Train(one, o),
				contract.Control: Train(compare.Unsplit(one), o),
			}})
		}
	}
	return out
}
