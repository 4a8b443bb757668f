package suite_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// busy counts the runs that go on.
type busy struct{ now, most, beside, made atomic.Int64 }

// watch makes a run that takes a while and counts itself.
func (b *busy) watch(alone bool) suite.Run {
	return suite.Run{Alone: alone, Do: func(context.Context, suite.Env) (*trace.History, error) {
		b.made.Add(1)
		n := b.now.Add(1)
		defer b.now.Add(-1)
		b.most.Store(max(b.most.Load(), n))
		time.Sleep(5 * time.Millisecond)
		if alone {
			b.beside.Add(b.now.Load() - 1 + n - 1)
		}
		return nil, nil
	}}
}

// plan is a trial of test runs, one each.
func plan(e *suite.Engine, runs ...suite.Run) []*suite.Trial {
	var out []*suite.Trial
	for _, r := range runs {
		out = append(out, e.Plan("C-X-001", suite.Case{Name: "x", Runs: map[contract.Role]suite.Run{contract.Test: r}}))
	}
	return out
}

func TestNothingRunsBesideRunsThatMustBeAlone(t *testing.T) {
	var b busy
	e := suite.Engine{Width: 3}
	var runs []suite.Run
	for i := range 24 {
		runs = append(runs, b.watch(i%3 == 0))
	}
	if err := e.Run(t.Context(), plan(&e, runs...)...); err != nil {
		t.Fatal(err)
	}
	if n := b.beside.Load(); n != 0 {
		t.Errorf("%d times another run went on beside one that must be alone", n)
	}
	if b.most.Load() < 2 {
		t.Error("the other runs went on one after another: the test shows nothing")
	}
}

// Runs that must be alone come last, so that the others wait for none of them;
// both kinds keep their order.
func TestRunsThatMustBeAloneComeLast(t *testing.T) {
	var order []int
	e := suite.Engine{Width: 1}
	var runs []suite.Run
	for i := range 7 {
		runs = append(runs, suite.Run{Alone: i%3 == 1, Do: func(context.Context, suite.Env) (*trace.History, error) {
			order = append(order, i)
			return nil, nil
		}})
	}
	if err := e.Run(t.Context(), plan(&e, runs...)...); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 2, 3, 5, 6, 1, 4}; !slices.Equal(order, want) {
		t.Errorf("runs went on in order %v, want %v", order, want)
	}
}

// Callers that do not know of each other are kept apart as well.
func TestRunsOfOtherCallersAreNotBeside(t *testing.T) {
	var b busy
	var e suite.Engine
	done := make(chan error)
	for i := range 12 {
		go func() { done <- e.Run(t.Context(), plan(&e, b.watch(i%3 == 0))...) }()
	}
	for range 12 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := b.beside.Load(); n != 0 || b.most.Load() < 2 {
		t.Errorf("%d times another run went on beside one that must be alone, at most %d at a time", n, b.most.Load())
	}
}

// Runs go on side by side only while the memory that they need together is there.
func TestRunsShareTheMemory(t *testing.T) {
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	need, err := dryrun.Fits(cfg, launch.Here, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	for memory, want := range map[int64]int64{need: 1, 2*need - 1: 1, 2 * need: 2, 0: 2} {
		var b busy
		e := suite.Engine{Width: 2, Memory: memory}
		r := b.watch(false)
		r.Config = &cfg
		trials := plan(&e, r, r, r, r, r, r, r, r, r, r, r, r)
		if err := errors.Join(e.Run(t.Context(), trials...), suite.Errors(trials...)); err != nil {
			t.Fatalf("memory for %d of %d bytes: %v", memory, need, err)
		}
		if n := b.most.Load(); n != want || b.made.Load() != 12 {
			t.Errorf("with %d bytes, %d of %d runs of %d bytes each went on at a time, want %d", memory, n, b.made.Load(), need, want)
		}
	}
	var b busy
	e := suite.Engine{Memory: need - 1}
	r := b.watch(false)
	r.Config = &cfg
	trials := plan(&e, r)
	if err := e.Run(t.Context(), trials...); err != nil || b.made.Load() != 0 || len(trials[0].Failures()) != 1 ||
		!strings.Contains(trials[0].Failures()[0], "case x: the test run ended early: nano on dp=1,microbatches=8: 1 ranks in one process need") {
		t.Errorf("%v, %d runs without their memory: %q", err, b.made.Load(), trials[0].Failures())
	}
}

// Runs of equal keys are made once, now and later, and alone if anyone asks.
func TestRunsAreSharedByKey(t *testing.T) {
	var b busy
	e := suite.Engine{Width: 4}
	first, second := b.watch(false), b.watch(true)
	first.Key, second.Key = "same", "same"
	trials := plan(&e, first, b.watch(false), second, b.watch(false))
	for range 2 {
		if err := e.Run(t.Context(), trials...); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Run(t.Context(), plan(&e, first)...); err != nil || b.made.Load() != 3 {
		t.Errorf("%v: %d runs, want 3", err, b.made.Load())
	}
	b = busy{}
	e = suite.Engine{Width: 4}
	var most int64
	shared := suite.Run{Key: "same", Do: func(context.Context, suite.Env) (*trace.History, error) {
		for range 10 {
			time.Sleep(time.Millisecond)
			most = max(most, b.now.Load())
		}
		return nil, nil
	}}
	alone := shared
	alone.Alone = true
	if err := e.Run(t.Context(), plan(&e, shared, alone, b.watch(false), b.watch(false))...); err != nil || most != 0 {
		t.Errorf("%v: %d runs beside one that one of two asks to be alone", err, most)
	}
}

func TestDeadlinesOfBrokenRunsAreShort(t *testing.T) {
	for _, c := range []struct{ parts, patience, want time.Duration }{
		{0, 0, 0}, {time.Hour, 0, time.Hour}, {0, time.Second, time.Second}, {time.Hour, time.Second, time.Second}, {time.Second, time.Hour, time.Second},
	} {
		var got time.Duration
		e := suite.Engine{Parts: launch.Parts{Deadline: c.parts}, Patience: c.patience}
		clean := plan(&e, suite.Run{Key: "shared", Do: func(_ context.Context, env suite.Env) (*trace.History, error) {
			got = env.Parts.Deadline
			return nil, nil
		}})[0]
		broken := clean.Break(suite.Mutant{ID: "nothing", Break: func(*suite.Case) {}})
		for trial, want := range map[*suite.Trial]time.Duration{clean: c.parts, broken: c.want} {
			got = -1
			if err := e.Run(t.Context(), trial); err != nil || got != want {
				t.Errorf("parts %s, patience %s: %s, want %s, %v", c.parts, c.patience, got, want, err)
			}
		}
	}
}

// A run that would train without a backend says so.
func TestTrainingNeedsABackend(t *testing.T) {
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	e := suite.Engine{Text: func(string) (data.Text, error) { return data.Default(), nil }}
	if h, err := e.Make(t.Context(), suite.Run{Config: &cfg}); h != nil || err == nil || !strings.Contains(err.Error(), "no backend") {
		t.Errorf("%v, %v", h, err)
	}
}

// A mutant breaks a copy of the case; runs that it leaves alone are shared.
func TestBreakingLeavesTheCaseAlone(t *testing.T) {
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Blank = []int{1}
	seed := cfg.Seed
	var e suite.Engine
	clean := e.Plan("C-X-001", suite.Case{Name: "x", Clauses: []string{"C-X-001.1"}, Runs: map[contract.Role]suite.Run{
		contract.Test: {Config: &cfg}, contract.Control: {Config: &cfg}}})
	broken := clean.Break(suite.Mutant{ID: "m", Break: func(c *suite.Case) {
		c.Runs[contract.Test].Config.Blank[0], c.Runs[contract.Test].Config.Seed, c.Clauses[0] = 7, seed+1, "other"
	}})
	if cfg.Blank[0] != 1 || cfg.Seed != seed || clean.Clauses[0] != "C-X-001.1" {
		t.Errorf("the case is broken: %v, %d, %v", cfg.Blank, cfg.Seed, clean.Clauses)
	}
	if broken.Runs[contract.Test].Config.Seed == seed {
		t.Error("the mutant broke nothing")
	}
	same := clean.Break(suite.Mutant{ID: "nothing", Break: func(*suite.Case) {}})
	if err := e.Run(t.Context(), clean, broken, same); err != nil {
		t.Fatal(err)
	}
	// Without a text every run ends in a panic. The control is shared, the test run
	// is made for every mutant, even for one that changes nothing.
	if n := strings.Count(suite.Errors(clean, broken, same).Error(), "C-X-001, "); n != 4 {
		t.Errorf("%d runs, want 4: %v", n, suite.Errors(clean, broken, same))
	}
}

func TestHeadersOfSavedHistoriesNameTheirCase(t *testing.T) {
	for text, want := range map[string][3]string{
		"C-X-001/nano dp=2/test": {"C-X-001", "nano dp=2", "test"},
		"C-X-001/a/b/dp=2,tp=2":  {"C-X-001", "a/b", "dp=2,tp=2"},
		"C-X-001/one":            {}, "x": {}, "": {},
	} {
		id, name, role := suite.Tag(text)
		if got := [3]string{id, name, string(role)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Runs that others make are those that they can find; where no more can be made there,
// that is why runs are not begun, whatever else ends, and the one that was under way is
// judged by what it recorded.
func TestAway(t *testing.T) {
	lost := errors.New("an agent is lost")
	var asked []suite.Away
	var over atomic.Bool // asked for beside the runs
	ctx, cancel := context.WithCancel(t.Context())
	ended := func() error {
		if over.Load() {
			return lost
		}
		return nil
	}
	e := &suite.Engine{Text: func(string) (data.Text, error) { return data.Default(), nil }, Over: ended,
		Away: func(_ context.Context, a suite.Away) (*trace.History, error) {
			asked = append(asked, a)
			if a.Name.Case == "third" {
				over.Store(true)
				cancel()
				return &trace.History{}, lost
			}
			return &trace.History{}, nil
		}}
	cfg, err := suite.Preset("nano", suite.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Plan.DP = 2
	here := 0
	drill := suite.Run{Do: func(context.Context, suite.Env) (*trace.History, error) {
		here++
		return &trace.History{}, nil
	}}
	plan := func(name string, r suite.Run) *suite.Trial {
		return e.Plan("C-X-001", suite.Case{Name: name, Runs: map[contract.Role]suite.Run{contract.Test: r}})
	}
	trials := []*suite.Trial{plan("first", suite.Run{Config: &cfg}), plan("second", drill)}
	trials = append(trials, e.PlanOther("C-X-001", suite.Case{Name: "other", Runs: map[contract.Role]suite.Run{contract.Test: drill}}))
	trials = append(trials, plan("third", drill), plan("fourth", drill))
	if err := e.Run(ctx, trials...); err != lost {
		t.Errorf("got %v", err)
	}
	if len(asked) != 3 || asked[0].Config == nil || asked[0].World != 2 || asked[1].Config != nil || asked[1].World != 0 || here != 1 {
		t.Errorf("asked for %+v, %d runs here", asked, here)
	}
	if len(trials[3].Unfinished()) > 0 || trials[3].Err(contract.Test) != lost || len(trials[4].Unfinished()) == 0 {
		t.Errorf("%q, %v, %q", trials[3].Unfinished(), trials[3].Err(contract.Test), trials[4].Unfinished())
	}
}

// TestRefusalsOfRunsThatEndedEarly: that a run was refused something is evidence, unless it
// ended early, as an agent was lost: what was refused then may have been by that.
func TestRefusalsOfRunsThatEndedEarly(t *testing.T) {
	for _, lost := range []error{nil, errors.New("agent 1 was killed")} {
		e := suite.Engine{Width: 1}
		trial := plan(&e, suite.Run{Do: func(context.Context, suite.Env) (*trace.History, error) {
			return &trace.History{Ranks: map[int][]trace.Event{0: {{Kind: trace.KindRefusal, Text: "the run is over"}, {Kind: trace.KindRefusal}, {Kind: trace.KindEnd}}}}, lost
		}})[0]
		if err := e.Run(t.Context(), trial); err != nil {
			t.Fatal(err)
		}
		want := map[bool]int{true: 3, false: 2}[lost == nil]
		if got := trial.Evidence(nil).Histories[contract.Test].Ranks[0]; len(got) != want {
			t.Errorf("ended by %v: %d events, want %d: %+v", lost, len(got), want, got)
		}
	}
}
