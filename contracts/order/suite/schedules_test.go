package suite

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/interleave"
	"github.com/lockstep-ml/lockstep/contracts/order"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// all are the schedules of a case and more seeds.
func all() []interleave.Schedule {
	var out []interleave.Schedule
	for _, role := range order.Schedules() {
		out = append(out, interleave.Schedule{Policy: interleave.Policy(role)})
	}
	for seed := range uint64(3) {
		out = append(out, interleave.Schedule{Policy: interleave.Random, Seed: 100 + seed})
	}
	return race.Some(4, out)
}

// config is the configuration of a default case.
func config(t *testing.T, name string) spec.Config {
	t.Helper()
	c, ok := Suite().Find(contracttest.Options(), name)
	if !ok {
		t.Fatalf("no case %q", name)
	}
	return *c.Runs[contract.Test].Config
}

// Every mutant is caught whatever the schedule that it meets; by the clause that
// it names, but for an order of sums that may happen to be the right one: policies
// let ranks come in ascending or descending order, and a sum of two commutes.
func TestMutantsUnderEverySchedule(t *testing.T) {
	var r contracttest.Runner
	c := Suite()
	for _, m := range c.Mutants {
		on, _ := c.Find(contracttest.Options(), m.On)
		for _, s := range all() {
			if m.ID == "summed-as-ranks-come" && s.Policy != interleave.Random {
				continue
			}
			t.Run(m.ID+" by "+s.String(), func(t *testing.T) {
				broken := suite.Case{Name: on.Name, Clauses: on.Clauses, Runs: map[contract.Role]suite.Run{
					contract.Control: on.Runs[contract.Control],
					contract.Test:    by(config(t, m.On), contracttest.Options(), s),
				}}
				m.Break(&broken)
				e, _ := r.Evidence(t, broken) // it may end early
				verdicts := map[string]contract.Verdict{}
				for _, res := range contracttest.Judge(c.Contract, []contract.Evidence{e}) {
					verdicts[res.Clause.ID] = res.Verdict()
				}
				if verdicts[m.Clause] != contract.Violated {
					t.Errorf("%v", verdicts)
				}
			})
		}
	}
}

// What nothing comes of but what was seen changes no bit: it is found by order
// alone.
func TestReadWhileReducedChangesNothing(t *testing.T) {
	var r contracttest.Runner
	c := Suite()
	i := slices.IndexFunc(c.Mutants, func(m suite.Mutant) bool { return m.ID == "gradient-read-while-reduced" })
	on, _ := c.Find(contracttest.Options(), c.Mutants[i].On)
	runs := map[contract.Role]suite.Run{}
	for role, run := range on.Runs { // Break leaves out the other schedules
		runs[role] = run
	}
	broken := suite.Case{Name: on.Name, Runs: runs}
	c.Mutants[i].Break(&broken)
	e, err := r.Evidence(t, broken)
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range contracttest.Judge(c.Contract, []contract.Evidence{e}) {
		if violated := len(res.Findings) > 0; violated != (res.Clause.ID == "C-ORDER-001.2") {
			t.Errorf("%s: %d findings", res.Clause.ID, len(res.Findings))
		}
	}
}

// played trains a configuration by a schedule: who had each turn, and every rank's
// events, but for where memory lies.
func played(t *testing.T, cfg spec.Config, s interleave.Schedule, f func(*launch.Parts)) ([]uint16, map[int][]string) {
	t.Helper()
	p := launch.Parts{Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }}
	scheduler := interleave.Attach(&p, s)
	if f != nil {
		f(&p)
	}
	out, err := launch.Local(t.Context(), cfg, data.Default(), p)
	if err != nil && f == nil {
		t.Fatal(err)
	}
	scheduler.Note(out.History)
	events := map[int][]string{}
	for e := range out.History.All {
		if e.Kind == trace.KindSpan {
			continue
		}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		events[e.Rank] = append(events[e.Rank], string(b))
	}
	return scheduler.Order(), events
}

// One schedule makes one run, to the order of turns and of events, also of a run
// that ends early; another makes another.
func TestOneScheduleOneRun(t *testing.T) {
	for _, name := range []string{"nano dp=4", "odd dp=3,zero=3,shard=tensors", "nano dp=1,pp=2,schedule=interleaved,virtual=2"} {
		cfg := config(t, name)
		seen := map[string]interleave.Schedule{}
		for _, s := range all() {
			turns, events := played(t, cfg, s, nil)
			again, same := played(t, cfg, s, nil)
			if !slices.Equal(turns, again) {
				t.Errorf("%s: %s gives other turns the second time", name, s)
			}
			if d := cmp.Diff(events, same); d != "" {
				t.Errorf("%s: %s gives other events the second time: %s", name, s, d)
			}
			key := string(encode(turns))
			if other, ok := seen[key]; ok {
				t.Errorf("%s: %s gives the turns of %s", name, s, other)
			}
			seen[key] = s
		}
	}
	cfg := config(t, "nano dp=4")
	for _, m := range mutants() {
		if m.On != "nano dp=4" {
			continue
		}
		s := interleave.Schedule{Policy: interleave.Random, Seed: 3}
		fault := func(p *launch.Parts) {
			c := suite.Case{Name: m.On, Runs: map[contract.Role]suite.Run{contract.Test: {}}}
			m.Break(&c)
			c.Runs[contract.Test].Parts(p)
		}
		turns, events := played(t, cfg, s, fault)
		again, same := played(t, cfg, s, fault)
		if !slices.Equal(turns, again) || cmp.Diff(events, same) != "" {
			t.Errorf("mutant %s: another run the second time", m.ID)
		}
	}
}

// encode makes turns a key.
func encode(turns []uint16) []byte {
	var out []byte
	for _, t := range turns {
		out = append(out, byte(t), byte(t>>8))
	}
	return out
}

// TestLessEvidenceIsInconclusive: a run that nobody watched, or a schedule that is
// missing, is no evidence.
func TestLessEvidenceIsInconclusive(t *testing.T) {
	var r contracttest.Runner
	c := Suite()
	on, _ := c.Find(contracttest.Options(), "nano dp=2,zero=3")
	e, err := r.Evidence(t, on)
	if err != nil {
		t.Fatal(err)
	}
	contracttest.Want(t, c, e, contract.Held, "1", "2", "3")
	late := contract.Role(interleave.QueuesLast)
	turns := func(e trace.Event) bool { return e.Kind == trace.KindTurns }
	contracttest.Want(t, c, contracttest.WithoutRole(e, late), contract.Inconclusive, "1", "2", "3")
	contracttest.Want(t, c, contracttest.WithoutRole(e, contract.Control), contract.Inconclusive, "1", "2", "3")
	contracttest.Want(t, c, contracttest.Without(e, late, turns), contract.Inconclusive, "1", "2", "3")
	contracttest.Want(t, c, contracttest.WithoutRank(e, late, 1), contract.Inconclusive, "1", "2", "3")
	digests := func(e trace.Event) bool { return e.Kind == trace.KindDigest && e.What == trace.Weight }
	without := e
	for role := range e.Histories {
		without = contracttest.Without(without, role, digests)
	}
	contracttest.Want(t, c, without, contract.Inconclusive, "1", "2")
	end := func(e trace.Event) bool { return e.Kind == trace.KindEnd }
	contracttest.Want(t, c, contracttest.Without(e, late, end), contract.Violated, "3")
	unwatched := contracttest.Edit(e, late, func(_ int, events []trace.Event) []trace.Event {
		for i := range events {
			if events[i].Kind == trace.KindTurns {
				events[i].Index = 0
			}
		}
		return events
	})
	contracttest.Want(t, c, unwatched, contract.Inconclusive, "1", "2", "3")
}
