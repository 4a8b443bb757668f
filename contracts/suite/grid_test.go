package suite_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// grid has fixtures of every kind: two on one configuration, a changed one, a
// larger model from level 2 on.
func grid(exact bool) *suite.Grid {
	return &suite.Grid{
		Fixtures: func(level int) []suite.Fixture {
			out := []suite.Fixture{
				{Config: "nano", Steps: 2, Plans: []string{"dp=2", "dp=3"}},
				{Config: "nano", Steps: 3, Plans: []string{"dp=8"}, Suffix: " longer"},
				{Config: "odd", Steps: 2, Plans: []string{"dp=4"}},
				{Config: "odd", Steps: 2, Plans: []string{"dp=2"}, Change: func(c *spec.Config) { c.Sequences = 5 }, Suffix: " of 5"},
			}
			if level > 1 {
				out = append(out, suite.Fixture{Config: "5M", Steps: 2, Plans: []string{"dp=2"}})
			}
			return out
		},
		Named: func(config string, _ int) suite.Fixture {
			return suite.Fixture{Config: config, Steps: 4, Plans: []string{"dp=2 then dp=1"}}
		},
		Exact: exact,
		Runs:  suite.Beside(compare.Single),
	}
}

func TestGridsMakeTheCasesThatAreAskedFor(t *testing.T) {
	for _, c := range []struct {
		name  string
		exact bool
		o     suite.Options
		want  []string
	}{
		{"default", false, suite.Options{Level: 1}, []string{"nano dp=2", "nano dp=3", "nano dp=8 longer", "odd dp=4", "odd dp=2 of 5"}},
		{"level", false, suite.Options{Level: 2}, []string{"nano dp=2", "nano dp=3", "nano dp=8 longer", "odd dp=4", "odd dp=2 of 5", "5M dp=2"}},
		{"configuration", false, suite.Options{Level: 2, Config: "5M"}, []string{"5M dp=2 then dp=1"}},
		{"plans, once per small configuration", false, suite.Options{Level: 2, Plans: []string{"dp=2", "tp=2"}},
			[]string{"nano dp=2", "nano dp=1,tp=2", "odd dp=2", "odd dp=1,tp=2"}},
		{"a plan that fits one of them", false, suite.Options{Level: 1, Plans: []string{"dp=16"}}, []string{"nano dp=16"}},
		{"configuration and plan", false, suite.Options{Level: 1, Config: "odd", Plans: []string{"dp=3"}}, []string{"odd dp=3"}},
		{"exact ones", true, suite.Options{Level: 1}, []string{"nano dp=2", "nano dp=8 longer", "odd dp=4", "odd dp=2 of 5"}},
		{"exact plans, on every fixture", true, suite.Options{Level: 1, Plans: []string{"dp=8", "dp=3"}}, []string{"nano dp=8", "nano dp=8 longer"}},
		{"a plan that is exact nowhere", true, suite.Options{Level: 1, Plans: []string{"dp=3"}}, nil},
		{"a plan that is exact elsewhere", true, suite.Options{Level: 1, Config: "odd", Plans: []string{"dp=8"}}, nil},
		{"unknown", false, suite.Options{Level: 1, Config: "giant"}, []string{"options"}},
	} {
		var got []string
		for _, cs := range grid(c.exact).Cases(c.o) {
			got = append(got, cs.Name)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// TestLevelsAreNested: what a level leaves out of the one below runs all the same,
// and what both have runs as the higher one says.
func TestLevelsAreNested(t *testing.T) {
	g := grid(false)
	g.Fixtures = func(level int) []suite.Fixture {
		return []suite.Fixture{{Config: "nano", Steps: 2 * level, Plans: []string{"dp=2", []string{"dp=4", "dp=8", "dp=16"}[level-1]}}}
	}
	got := map[string]int{}
	for _, cs := range g.Cases(suite.Options{Level: 3}) {
		got[cs.Name] = cs.Runs[contract.Test].Config.Steps
	}
	if d := cmp.Diff(map[string]int{"nano dp=2": 6, "nano dp=16": 6, "nano dp=8": 4, "nano dp=4": 2}, got); d != "" {
		t.Error(d)
	}
}

func TestGridsApplyOptionsAndChanges(t *testing.T) {
	g := grid(false)
	g.Prepare = func(o suite.Options, c *spec.Config) { c.Sequences, c.Model.SeqLen = 9, 11 }
	g.Clauses = []string{"C-X-001.2"}
	all := g.Cases(suite.Options{Level: 1, Steps: 7})
	i := slices.IndexFunc(all, func(c suite.Case) bool { return c.Name == "odd dp=2 of 5" })
	if i < 0 {
		t.Fatalf("no such case in %v", all)
	}
	test, control := all[i].Runs[contract.Test], all[i].Runs[contract.Control]
	if c := test.Config; c.Sequences != 5 || c.Model.SeqLen != 11 || c.Steps != 7 || c.Plan.DP != 2 || !all[i].Shows("C-X-001.2") || all[i].Shows("C-X-001.1") {
		t.Errorf("%+v, clauses %v", c, all[i].Clauses)
	}
	if control.Config.Plan.World() != 1 || control.Config.Sequences != 5 || control.Key == test.Key || control.Key == "" {
		t.Errorf("control %+v", control)
	}
	if again := g.Cases(suite.Options{Level: 1, Steps: 7}); again[i].Runs[contract.Test].Key != test.Key {
		t.Error("the same case has another key")
	}
}

// TestEpochsEndWithinACase: the text is cut where the steps of an epoch and half a
// step end, of whatever text, and options make such a case longer, not shorter.
func TestEpochsEndWithinACase(t *testing.T) {
	g := grid(false)
	g.Fixtures = func(int) []suite.Fixture {
		return []suite.Fixture{{Config: "odd", Steps: 10, Plans: []string{"dp=2"}, Epoch: 7, Suffix: suite.Epochs,
			Change: func(c *spec.Config) { c.Model.SeqLen = 11 }}}
	}
	sparse := data.Text{Name: "sparse", Bytes: []byte(strings.Repeat("ab"+strings.Repeat("\n", 50), 500))}
	own := data.Text{Name: "own[:3]", Bytes: data.Default().Bytes}
	for _, text := range []data.Text{data.Default(), own, sparse, data.Default().Head(700)} {
		for steps, want := range map[int]int{0: 10, 3: 10, 12: 12} {
			all := g.Cases(suite.Options{Level: 1, Steps: steps, Text: text})
			if len(all) != 1 || all[0].Runs[contract.Test].Config == nil {
				t.Fatalf("text %s: cases %+v", text.Name, all)
			}
			cfg := all[0].Runs[contract.Test].Config
			used := text
			if cfg.Text != text.Name {
				var err error
				if used, err = data.Part(cfg.Text, func(string) (data.Text, error) { return text, nil }); err != nil {
					t.Fatal(err)
				}
			}
			set, err := cfg.Set(used)
			if err != nil {
				t.Fatal(err)
			}
			short := len(text.Bytes) == 700
			if cfg.Steps != want || !short && set.Len() != 7*13+6 || set.Steps() >= cfg.Steps || short != (cfg.Text == text.Name) {
				t.Errorf("%d bytes of %s, steps=%d: %d steps on %s, which has %d sequences", len(text.Bytes), text.Name, steps, cfg.Steps, cfg.Text, set.Len())
			}
		}
	}
}
