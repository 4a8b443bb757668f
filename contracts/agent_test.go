package contracts

import (
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/kernels"
)

// An agent finds every run by its name, with the configuration that the driver means.
func TestAgentsFindRuns(t *testing.T) {
	for level := 1; level <= 2; level++ {
		o := Options{Options: suite.Options{Level: level}, Parts: full().Parts}
		if err := o.Check(nil); err != nil {
			t.Fatal(err)
		}
		a := &Agent{o: &o, engine: o.engine()}
		found := 0
		same := func(c suite.Case, n suite.RunName) {
			for _, role := range c.Roles() {
				n.Role = role
				got, err := a.trial(suite.Away{Name: n})
				if err != nil {
					t.Fatalf("%s: %v", n, err)
				}
				if !reflect.DeepEqual(got.Runs[role].Config, c.Runs[role].Config) || (got.Runs[role].Do == nil) != (c.Runs[role].Do == nil) || (got.Runs[role].Parts == nil) != (c.Runs[role].Parts == nil) {
					t.Errorf("%s: the agent finds another run", n)
				}
				found++
			}
		}
		for _, c := range All() {
			for _, one := range o.Cases(c) {
				same(one, suite.RunName{Contract: c.ID, Case: one.Name})
			}
			for _, m := range c.Mutants {
				if one, ok := c.Find(o.Options, m.On); ok {
					m.Break(&one)
					// The name of a broken run is that of the case which is broken.
					same(one, suite.RunName{Contract: c.ID, Case: m.On, Mutant: m.ID})
				}
			}
		}
		if found < 400 {
			t.Errorf("%d runs", found)
		}
		for _, n := range []suite.RunName{{Contract: "C-NONE-001"}, {Contract: "C-DDP-001", Case: "no case"}, {Contract: "C-DDP-001", Case: "nano dp=2", Mutant: "none"}} {
			if _, err := a.trial(suite.Away{Name: n}); err == nil {
				t.Errorf("%+v is found", n)
			}
		}
	}
}

// An agent, whose share of the memory is another, has the case that the driver's memory
// allows.
func TestAgentsHaveTheMemoryOfTheirDriver(t *testing.T) {
	share := Options{Options: suite.Options{Config: "350M", Memory: 8 << 30}, Parts: full().Parts}
	a, err := NewAgent(share, false)
	if err != nil {
		t.Fatal(err)
	}
	all := share
	all.Memory = 20 << 30
	c, err := Find("C-MODEL-001")
	if err != nil {
		t.Fatal(err)
	}
	one, small := all.Cases(c)[0], share.Cases(c)[0]
	got, err := a.trial(suite.Away{Name: suite.RunName{Contract: c.ID, Case: one.Name, Role: contract.Test}, Memory: all.Memory})
	if err != nil {
		t.Fatal(err)
	}
	want, less := one.Runs[contract.Test].Config, small.Runs[contract.Test].Config
	if found := got.Runs[contract.Test].Config; !reflect.DeepEqual(found, want) || found.Model.Layers == less.Model.Layers {
		t.Errorf("the agent has %d blocks, the driver means %d, and the agent's own memory has room for %d", found.Model.Layers, want.Model.Layers, less.Model.Layers)
	}
}

// A mutant that asks for turns, which only ranks of one process can take, says that it
// needs one process.
func TestMutantsThatNeedOneProcess(t *testing.T) {
	marked := 0
	for _, c := range All() {
		for _, m := range c.Mutants {
			one, ok := c.Find(suite.Options{Level: 1}, m.On)
			if !ok || c.OneProcess {
				continue
			}
			m.Break(&one)
			p := launch.Parts{Backend: func(int) (kernels.Backend, error) { return nil, nil }}
			if change := one.Runs[contract.Test].Parts; change != nil {
				change(&p)
			}
			if m.OneProcess {
				marked++
			}
			if p.Turns != nil && !m.OneProcess {
				t.Errorf("%s, mutant %s takes turns in one process, and does not say so", c.ID, m.ID)
			}
		}
	}
	if marked == 0 {
		t.Error("no mutant is marked")
	}
}

// An agent has the cases of its driver: of a self-test those of the level that mutants
// break.
func TestAgentsHaveTheirDriversCases(t *testing.T) {
	for _, selfTest := range []bool{false, true} {
		o := full()
		o.Level = 3
		a, err := NewAgent(o, selfTest)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{false: 3, true: mutantLevel}[selfTest]; a.o.Level != want {
			t.Errorf("self-test %v: level %d, want %d", selfTest, a.o.Level, want)
		}
	}
}

// What needs one process is left out of a self-test by name, and the others are not.
func TestSelfTestLeavesOut(t *testing.T) {
	o := full()
	o.Agents = 3
	cs := []*suite.Suite{}
	for _, id := range []string{"C-DDP-001", "C-ORDER-001"} {
		c, err := Find(id)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	if err := o.mutants(cs[:1]); err != nil {
		t.Fatal(err)
	}
	s := newSelfTest(cs, &o)
	groups, err := s.groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != 1 || len(groups[0].attempts) != len(cs[0].Mutants)-1 {
		t.Errorf("%d groups", len(groups))
	}
	said := strings.Join(s.leftOut(), "\n")
	if !strings.Contains(said, "agents=3: shared-moments\n") || !strings.Contains(said, "C-ORDER-001: not run") {
		t.Errorf("left out are %s", said)
	}
	if !s.leaves("C-ORDER-001.1") || s.leaves("C-TP-001.1") {
		t.Error("other clauses are left out")
	}
	// A clause whose late mutants may be among those is not said to look at no late step.
	s.every = true
	for _, a := range groups[0].attempts {
		a.out = report.Mutant{ID: a.mutant.ID, Outcome: report.Caught, Late: new(int)}
	}
	for _, cl := range s.summary(groups[0]).Clauses {
		if left := s.leaves(cl.ID); left && cl.Verdict != contract.Held || !left && cl.ID != "C-DDP-001.1" && cl.Verdict != contract.Violated {
			t.Errorf("%s: %s, left out %t", cl.ID, cl.Verdict, left)
		}
	}
}
