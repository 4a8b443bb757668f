package contracts

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

func TestOneCaseIsRun(t *testing.T) {
	toy := &toy{}
	o := options()
	o.Case = "toy b"
	r, err := Verify(t.Context(), []*suite.Suite{toy.contract()}, o)
	if err != nil {
		t.Fatal(err)
	}
	if n := toy.made.Load(); n != 2 || r.Verdict != contract.Held || r.Contracts[0].Clauses[0].Saw != 4 {
		t.Errorf("%d runs, %s, %+v", n, r.Verdict, r.Contracts[0].Clauses)
	}
}

func TestClausesOfOtherCasesAreNotShown(t *testing.T) {
	c := (&toy{}).contract()
	inner := c.Cases
	c.Cases = func(o suite.Options) []suite.Case {
		out := inner(o)
		out[0].Clauses = []string{"C-TOY-001.1"}
		return out
	}
	o := options()
	o.Case = "toy a"
	r, err := Verify(t.Context(), []*suite.Suite{c}, o)
	if err != nil || r.Verdict != contract.Held || len(r.Contracts[0].Clauses) != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

// A contract that was asked for by name and has no such case is left out, and nothing is
// held.
func TestContractsWithoutTheCaseAreLeftOut(t *testing.T) {
	a, b := (&toy{}).contract(), renamed((&toy{}).contract())
	b.Cases = func(suite.Options) []suite.Case {
		return []suite.Case{{Name: "toy c", Runs: map[contract.Role]suite.Run{contract.Test: (&toy{}).record(2, 2, nil), contract.Control: (&toy{}).record(1, 2, nil)}}}
	}
	for i := range b.Mutants {
		b.Mutants[i].On = "toy c"
	}
	both := []*suite.Suite{a, b}
	o := options()
	o.Case = "toy c"
	r, err := Verify(t.Context(), both, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Contracts) != 1 || r.Contracts[0].ID != b.ID || !has(r.LeftOut, `C-TOY-001: has no case "toy c"`) || r.Verdict != contract.Inconclusive {
		t.Errorf("%s of %d contracts, left out are %q", r.Verdict, len(r.Contracts), r.LeftOut)
	}
	o.Case = "toy"
	_, err = Verify(t.Context(), both, o)
	var wrong *OptionError
	for _, want := range []string{`case "toy": known at level 1`, `C-TOY-001 "toy a"`, `C-TOY-001 "toy b"`, `C-TWO-001 "toy c"`} {
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// renamed gives a toy another ID.
func renamed(c *suite.Suite) *suite.Suite {
	c.ID = "C-TWO-001"
	for _, cl := range c.Clauses {
		cl.ID = strings.Replace(cl.ID, "TOY", "TWO", 1)
	}
	for i := range c.Mutants {
		c.Mutants[i].Clause = strings.Replace(c.Mutants[i].Clause, "TOY", "TWO", 1)
	}
	return c
}

func TestLinesToReproduceHaveTheFlagsThatWereGiven(t *testing.T) {
	c := (&toy{}).contract()
	cs := suite.Case{Name: "toy a"}
	for want, change := range map[string]func(*Options){
		``:                                 func(*Options) {},
		` --plan "dp=2; dp=4"`:             func(o *Options) { o.Plans = []string{"dp=2", "dp=4"} },
		` --config odd --steps 3`:          func(o *Options) { o.Config, o.Steps = "odd", 3 },
		` --level 2 --seed 7`:              func(o *Options) { o.Level, o.Seed = 2, 7 },
		` --launch procs --agents 3`:       func(o *Options) { o.Agents = 3 },
		` --data "my book.txt"`:            func(o *Options) { o.Text.Name = "my book.txt" },
		` --data '$it'\''s' --backend ref`: func(o *Options) { o.Text.Name, o.Backend = "$it's", "ref" },
		` --backend cuda --devices sim:2 --require-device cuda`: func(o *Options) {
			o.Backend, o.Chosen.Flags = "cuda", []string{"--devices", "sim:2", "--require-device", "cuda"}
		},
	} {
		o := options()
		change(&o)
		if got := o.Reproduce(c, cs); got != `verify --contract C-TOY-001 --case "toy a"`+want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestLinesHaveTheEnvironmentThatChoseDevices: whatever the line is of.
func TestLinesHaveTheEnvironmentThatChoseDevices(t *testing.T) {
	o := options()
	o.Backend, o.Chosen.Env = "cuda", []string{"LOCKSTEP_CUDA=sim:3", "LOCKSTEP_CUDA_SIM=my dir/sim.so"}
	const env = `LOCKSTEP_CUDA=sim:3 LOCKSTEP_CUDA_SIM="my dir/sim.so" verify `
	c := (&toy{}).contract()
	j := &judgement{o: &o, dirs: []string{"out"}}
	for want, got := range map[string]string{
		env + "--contract C-TOY-001 --case x --backend cuda":      o.Reproduce(c, suite.Case{Name: "x"}),
		env + "--history out --contract C-TOY-001 --backend cuda": j.line(c),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	toy := &toy{}
	o.Histories, o.Progress = "", nil
	r, err := SelfTest(t.Context(), []*suite.Suite{withTest(toy.contract(), toy.record(2, 2, wrong(1)))}, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Contracts[0].Clauses[0].Findings {
		if !strings.HasPrefix(f.Reproduce, env+"--self-test ") || !strings.HasSuffix(f.Reproduce, " --backend cuda") {
			t.Errorf("%s", f.Reproduce)
		}
	}
	if len(r.Contracts[0].Clauses[0].Findings) == 0 {
		t.Error("nothing was found")
	}
}
