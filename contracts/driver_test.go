package contracts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	ddp "github.com/lockstep-ml/lockstep/contracts/ddp/suite"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

func TestVerifyRunsJudgesAndShares(t *testing.T) {
	toy := &toy{}
	c := toy.contract()
	r, err := Verify(t.Context(), []*suite.Suite{c}, options())
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != contract.Held || r.Contracts[0].Clauses[0].Saw != 8 {
		t.Errorf("verdict %s, %+v", r.Verdict, r.Contracts[0].Clauses)
	}
	if n := toy.made.Load(); n != 3 {
		t.Errorf("%d runs, want 3: the control has a key and is shared", n)
	}
}

// withTest makes the contract's first case run r.
func withTest(c *suite.Suite, r suite.Run) *suite.Suite {
	inner := c.Cases
	c.Cases = func(o suite.Options) []suite.Case {
		out := inner(o)
		out[0].Runs[contract.Test] = r
		return out
	}
	return c
}

func TestVerifyReportsViolations(t *testing.T) {
	toy := &toy{}
	c := withTest(toy.contract(), toy.record(2, 2, wrong(1)))
	r, err := Verify(t.Context(), []*suite.Suite{c}, options())
	if err != nil {
		t.Fatal(err)
	}
	cl := r.Contracts[0].Clauses[0]
	if r.Verdict != contract.Violated || len(cl.Findings) != 1 {
		t.Fatalf("verdict %s, %+v", r.Verdict, cl)
	}
	f := cl.Findings[0]
	if f.Case != "toy a" || f.Rank != 1 || f.Step != 1 || f.Reproduce != `verify --contract C-TOY-001 --case "toy a"` {
		t.Errorf("finding %+v", f)
	}
}

func TestMissingEvidenceIsNoPass(t *testing.T) {
	toy := &toy{}
	drop := func(rank int, e *trace.Event) bool { return rank == 0 || e.Step == 0 }
	c := withTest(toy.contract(), toy.record(2, 2, drop))
	r, err := Verify(t.Context(), []*suite.Suite{c}, options())
	if err != nil || r.Verdict != contract.Inconclusive {
		t.Errorf("verdict %s, %v", r.Verdict, err)
	}
}

// A run that needs more memory than it may use ends before it begins, and the
// report says by how much.
func TestRunsThatDoNotFitAreInconclusive(t *testing.T) {
	o := options()
	o.Memory, o.Case = 1<<20, "nano dp=2"
	r, err := Verify(t.Context(), []*suite.Suite{ddp.Suite()}, o)
	if r == nil || r.Verdict != contract.Inconclusive || err == nil || !strings.Contains(err.Error(), "2 ranks in one process need 0.0 GiB of memory, and it may use 0.0 GiB") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRunsThatFailAreJudgedAndNeverHold(t *testing.T) {
	for _, how := range []string{"error", "panic"} {
		toy := &toy{}
		good, bad := toy.record(2, 2, nil).Do, toy.record(2, 2, wrong(0)).Do
		fail := func(do func(context.Context, suite.Env) (*trace.History, error)) suite.Run {
			return suite.Run{Do: func(ctx context.Context, env suite.Env) (*trace.History, error) {
				h, _ := do(ctx, env)
				if how == "panic" {
					panic("device on fire")
				}
				return h, errors.New("device on fire")
			}}
		}
		r, err := Verify(t.Context(), []*suite.Suite{withTest(toy.contract(), fail(good))}, options())
		if err == nil || !strings.Contains(err.Error(), "device on fire") || !strings.Contains(err.Error(), "C-TOY-001, toy a, test run") {
			t.Fatalf("%s: error %v", how, err)
		}
		if r.Verdict != contract.Inconclusive || !has(r.Contracts[0].Clauses[0].Doubts, "device on fire") {
			t.Errorf("%s: all evidence, then an error: %s, %v", how, r.Verdict, r.Contracts[0].Clauses[0].Doubts)
		}
		if how == "panic" {
			continue
		}
		r, err = Verify(t.Context(), []*suite.Suite{withTest(toy.contract(), fail(bad))}, options())
		if err == nil || r.Verdict != contract.Violated {
			t.Errorf("a violation before the error: %s, %v", r.Verdict, err)
		}
	}
}

func TestVerifyStopsWithItsContext(t *testing.T) {
	toy := &toy{}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	c := withTest(toy.contract(), suite.Run{Do: func(ctx context.Context, _ suite.Env) (*trace.History, error) {
		cancel(stop)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	o := options()
	o.Histories = t.TempDir()
	r, err := Verify(ctx, []*suite.Suite{c}, o)
	if r == nil || !errors.Is(err, stop) || r.Verdict != contract.Inconclusive || !has(r.Notes, "enough: ") {
		t.Fatalf("report %+v, error %v", r, err)
	}
	if d := r.Contracts[0].Clauses[0].Doubts; !has(d, "case toy a: the test run was interrupted") {
		t.Errorf("what was not run is not named: %v", d)
	}
}

// What was made until a verification is interrupted is judged: a violation stands,
// and nothing is held for want of the rest.
func TestInterruptedVerificationKeepsWhatWasJudged(t *testing.T) {
	for want, spoil := range map[contract.Verdict]func(rank int, e *trace.Event) bool{contract.Violated: wrong(1), contract.Inconclusive: nil} {
		toy := &toy{}
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("enough")
		c := withTest(toy.contract(), toy.record(2, 2, spoil))
		inner := c.Cases
		c.Cases = func(o suite.Options) []suite.Case {
			out := inner(o)
			out[1].Runs[contract.Test] = suite.Run{Do: func(ctx context.Context, _ suite.Env) (*trace.History, error) {
				cancel(stop)
				return nil, context.Cause(ctx)
			}}
			return out
		}
		r, err := Verify(ctx, []*suite.Suite{c}, options())
		if !errors.Is(err, stop) || r == nil || r.Verdict != want || !has(r.Notes, "enough: 1 of 2 cases were run and judged") {
			t.Fatalf("%v: %v, %+v", want, err, r)
		}
		if cl := r.Contracts[0].Clauses[0]; !has(cl.Doubts, "case toy b: the test run was interrupted") || cl.Saw == 0 {
			t.Errorf("%v: %+v", want, cl)
		}
	}
}

// Mutants that an interrupted self-test did not come to are named, and are neither
// caught nor missed.
func TestInterruptedSelfTestNamesTheRest(t *testing.T) {
	toy := &toy{}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	c := toy.contract()
	c.Mutants[1].Break = breaking(suite.Run{Do: func(ctx context.Context, _ suite.Env) (*trace.History, error) {
		cancel(stop)
		return nil, context.Cause(ctx)
	}})
	r, err := SelfTest(ctx, []*suite.Suite{c}, options())
	if !errors.Is(err, stop) || r == nil || r.Verdict != contract.Inconclusive {
		t.Fatalf("%v, %+v", err, r)
	}
	if m := r.Contracts[0].Clauses[1].Mutants[0]; m.Outcome != report.NotRun || !strings.Contains(m.Detail, "enough") {
		t.Errorf("%+v", m)
	}
}

func TestClausesThatPanicAreErrors(t *testing.T) {
	c := (&toy{}).contract()
	inner := c.Clauses[1].Check
	for name, check := range map[string]func(p *contract.Pass){
		"index out of range [3] with length 0":            func(*contract.Pass) { _ = []int(nil)[len(c.Clauses)+1] },
		"invalid memory address or nil pointer dereferen": func(*contract.Pass) { _ = (*suite.Suite)(nil).Mutants },
		"out of order": func(*contract.Pass) { panic("out of order") },
	} {
		c.Clauses[1].Check = check
		r, err := Verify(t.Context(), []*suite.Suite{c}, options())
		if err == nil || !strings.Contains(err.Error(), "judging C-TOY-001: C-TOY-001.2 on case toy a: panic: ") || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "(driver_test.go:") {
			t.Errorf("%s: error %v", name, err)
		}
		if r == nil || r.Contracts[0].Clauses[0].Verdict != contract.Held || r.Contracts[0].Clauses[1].Verdict != contract.Inconclusive || !has(r.Contracts[0].Clauses[1].Doubts, "broke down: panic: ") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	c.Clauses[1].Check = func(p *contract.Pass) { inner(p); p.Report(contract.Finding{Message: "seen"}); panic("too late") }
	if r, err := Verify(t.Context(), []*suite.Suite{c}, options()); err == nil || r.Verdict != contract.Violated {
		t.Errorf("a violation that was found before: %v, %+v", err, r)
	}
}

func TestSelfTestTellsMutantsApart(t *testing.T) {
	toy := &toy{}
	c := toy.contract()
	violated := suite.Run{Do: toy.record(2, 2, wrong(1)).Do}
	add := func(id, clause string, r suite.Run) {
		c.Mutants = append(c.Mutants, suite.Mutant{ID: id, Clause: clause, On: "toy a", At: suite.At(suite.Any, suite.Any, "value"), Says: id, Break: breaking(r)})
	}
	add("no-op", "C-TOY-001.1", toy.record(2, 2, nil))
	add("unseen", "C-TOY-001.1", toy.record(2, 2, wrong(-1)))
	c.Mutants = append(c.Mutants, suite.Mutant{ID: "elsewhere", Clause: "C-TOY-001.1", On: "toy b", At: suite.At(suite.Any, suite.Any, "value"), Says: "the control alone is wrong", Break: func(cs *suite.Case) {
		cs.Runs[contract.Control] = toy.record(1, 2, wrong(0))
	}})
	add("dead", "C-TOY-001.2", suite.Run{Do: func(context.Context, suite.Env) (*trace.History, error) { return nil, errors.New("no start") }})
	add("late", "C-TOY-001.2", suite.Run{Do: func(ctx context.Context, env suite.Env) (*trace.History, error) {
		h, _ := violated.Do(ctx, env)
		return h, errors.New("ended early")
	}})
	r, err := SelfTest(t.Context(), []*suite.Suite{c}, options())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]report.Outcome{"one-rank": report.Caught, "all-ranks": report.Caught, "no-op": report.Nothing,
		"unseen": report.Survived, "elsewhere": report.Survived, "dead": report.NotRun, "late": report.Caught}
	for _, cl := range r.Contracts[0].Clauses {
		for _, m := range cl.Mutants {
			if m.Outcome != want[m.ID] {
				t.Errorf("mutant %s: %s (%s), want %s", m.ID, m.Outcome, m.Detail, want[m.ID])
			}
			delete(want, m.ID)
		}
	}
	if len(want) != 0 || r.Verdict != contract.Violated || !r.SelfTest {
		t.Errorf("not run: %v; verdict %s", want, r.Verdict)
	}
}

func TestSelfTestHoldsAndLeavesTheCasesAlone(t *testing.T) {
	toy := &toy{}
	r, err := SelfTest(t.Context(), []*suite.Suite{toy.contract()}, options())
	if err != nil || r.Verdict != contract.Held {
		t.Fatalf("verdict %s, %v", r.Verdict, err)
	}
	// Two unbroken cases with one shared control, then two broken test runs; a
	// function cannot be compared, so their controls are run again.
	if n := toy.made.Load(); n != 7 {
		t.Errorf("%d runs, want 7", n)
	}
}

// A clause that looks at the first steps alone catches a fault that is there from the
// first step on, and the self-test says what it does not see.
func TestSelfTestSeesAClauseThatForgetsLaterSteps(t *testing.T) {
	toy := &toy{}
	always := func(r int, e *trace.Event) bool { e.Bits += uint32(r); return true }
	for _, forgets := range []bool{false, true} {
		c := toy.contract()
		c.Clauses, c.Mutants = c.Clauses[:1], c.Mutants[:1]
		c.Mutants[0].Break, c.Mutants[0].At.Step = breaking(toy.record(2, 2, always)), 0
		if whole := c.Clauses[0].Check; forgets {
			c.Clauses[0].Check = func(p *contract.Pass) {
				h := graft(p.Histories[contract.Test], toyHistory(t, toy), 1)
				p.Histories = map[contract.Role]*trace.History{contract.Test: h}
				whole(p)
			}
		}
		r, err := SelfTest(t.Context(), []*suite.Suite{c}, options())
		if err != nil {
			t.Fatal(err)
		}
		cl := &r.Contracts[0].Clauses[0]
		if m := cl.Mutants[0]; m.Outcome != report.Caught || m.Late == nil || (*m.Late == 1) == forgets {
			t.Errorf("forgets %v: the mutant is %s, late %v", forgets, m.Outcome, m.Late)
		}
		if want := map[bool]contract.Verdict{false: contract.Held, true: contract.Violated}[forgets]; cl.Verdict != want {
			t.Errorf("forgets %v: the clause is %s: %v", forgets, cl.Verdict, cl.Findings)
		}
	}
}

// toyHistory is that of an unbroken toy.
func toyHistory(t *testing.T, toy *toy) *trace.History {
	h, err := toy.record(2, 2, nil).Do(t.Context(), suite.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestSelfTestNeedsAnUnbrokenRunThatHolds(t *testing.T) {
	toy := &toy{}
	r, err := SelfTest(t.Context(), []*suite.Suite{withTest(toy.contract(), toy.record(2, 2, wrong(1)))}, options())
	if err != nil {
		t.Fatal(err)
	}
	if m := r.Contracts[0].Clauses[0].Mutants[0]; m.Outcome != report.Unclear {
		t.Errorf("mutant %s: %s", m.ID, m.Outcome)
	}
}

func TestHistoriesAreSavedAndJudgedAgain(t *testing.T) {
	dir := t.TempDir()
	toy := &toy{}
	c := withTest(toy.contract(), toy.record(2, 2, wrong(1)))
	o := options()
	o.Histories = dir
	first, err := Verify(t.Context(), []*suite.Suite{c}, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "C-TOY-001_toy_a", "test", "0001"+trace.Extension)); err != nil {
		t.Error(err)
	}
	made := toy.made.Load()
	again, err := JudgeHistories(t.Context(), []string{dir}, []*suite.Suite{c}, options())
	if err != nil {
		t.Fatal(err)
	}
	if toy.made.Load() != made {
		t.Error("judging histories ran something")
	}
	a, b := first.Contracts[0].Clauses, again.Contracts[0].Clauses
	for i := range a {
		if a[i].Verdict != b[i].Verdict || a[i].Saw != b[i].Saw || a[i].Found != b[i].Found {
			t.Errorf("clause %s: %+v, from files %+v", a[i].ID, a[i], b[i])
		}
	}
}

func TestMissingRanksAreNamed(t *testing.T) {
	dir := t.TempDir()
	c := (&toy{}).contract()
	o := options()
	o.Histories = dir
	if _, err := Verify(t.Context(), []*suite.Suite{c}, o); err != nil {
		t.Fatal(err)
	}
	judge := func(expect int) *report.Report {
		o := options()
		o.ExpectRanks = expect
		r, err := JudgeHistories(t.Context(), []string{dir}, []*suite.Suite{c}, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := judge(2); r.Verdict != contract.Held {
		t.Errorf("all ranks there: %s", r.Verdict)
	}
	if r := judge(3); r.Verdict != contract.Inconclusive || !has(r.Contracts[0].Clauses[0].Doubts, "2 ranks, 3 were expected") {
		t.Errorf("three expected: %s, %v", r.Verdict, r.Contracts[0].Clauses[0].Doubts)
	}
	if err := os.Remove(filepath.Join(dir, "C-TOY-001_toy_b", "test", "0001"+trace.Extension)); err != nil {
		t.Fatal(err)
	}
	if r := judge(2); r.Verdict != contract.Inconclusive || !has(r.Contracts[0].Clauses[0].Doubts, "ranks 1 of the 2") {
		t.Errorf("rank 1 is gone: %s, %v", r.Verdict, r.Contracts[0].Clauses[0].Doubts)
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	for want, spoil := range map[string]func(*suite.Suite){
		"must look like C-NAME-001":  func(c *suite.Suite) { c.ID = "toy" },
		"title is missing":           func(c *suite.Suite) { c.Title = "" },
		"statement is missing":       func(c *suite.Suite) { c.Statement = "" },
		"documentation is missing":   func(c *suite.Suite) { c.Doc = "" },
		"the ID must be C-TOY-001.2": func(c *suite.Suite) { c.Clauses[1].ID = "C-TOY-001.3" },
		"sentence is missing":        func(c *suite.Suite) { c.Clauses[0].Says = "" },
		"evidence is missing":        func(c *suite.Suite) { c.Clauses[0].Reads = "" },
		"derivation of the bound":    func(c *suite.Suite) { c.Clauses[0].Class = contract.Bound },
		`class "" is unknown`:        func(c *suite.Suite) { c.Clauses[0].Class = "" },
		"no check":                   func(c *suite.Suite) { c.Clauses[0].Check = nil },
		"no mutant shows":            func(c *suite.Suite) { c.Mutants = c.Mutants[:1] },
		"no clauses":                 func(c *suite.Suite) { c.Clauses = nil },
		"no cases":                   func(c *suite.Suite) { c.Cases = nil },
		`level 3: lacks the case "toy b"`: func(c *suite.Suite) {
			cases := c.Cases
			c.Cases = func(o suite.Options) []suite.Case { return cases(o)[:min(2, 4-o.Level)] }
		},
		`there is no case "elsewhere"`:    func(c *suite.Suite) { c.Mutants[0].On = "elsewhere" },
		`clause "C-TOY-001.9" is unknown`: func(c *suite.Suite) { c.Mutants[0].Clause = "C-TOY-001.9" },
		"breaks nothing":                  func(c *suite.Suite) { c.Mutants[0].Break = nil },
		"empty or not unique":             func(c *suite.Suite) { c.Mutants[0].ID = c.Mutants[1].ID },
		"no test run":                     withCase(func(cs *suite.Case) { delete(cs.Runs, contract.Test) }),
		"needs a training":                withCase(func(cs *suite.Case) { cs.Runs[contract.Test] = suite.Run{} }),
		`clause "other" is unknown`:       withCase(func(cs *suite.Case) { cs.Clauses = []string{"other"} }),
		"is no evidence for clause":       withCase(func(cs *suite.Case) { cs.Clauses = []string{"C-TOY-001.2"} }),
		`"toy b" is empty or not unique`:  withCase(func(cs *suite.Case) { cs.Name = "toy b" }),
	} {
		c := (&toy{}).contract()
		spoil(c)
		if err := Validate([]*suite.Suite{c}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want a fault %q, got %v", want, err)
		}
	}
	good := (&toy{}).contract()
	if err := Validate([]*suite.Suite{good}); err != nil {
		t.Error(err)
	}
	if err := Validate([]*suite.Suite{good, good}); err == nil {
		t.Error("two contracts of one ID are accepted")
	}
}

// withCase spoils the first case.
func withCase(spoil func(*suite.Case)) func(*suite.Suite) {
	return func(c *suite.Suite) {
		inner := c.Cases
		c.Cases = func(o suite.Options) []suite.Case {
			out := inner(o)
			spoil(&out[0])
			return out
		}
	}
}

func TestOptionsAreRefusedWithValueAndRule(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"level=4":           func(o *Options) { o.Level = 4 },
		"level=-1":          func(o *Options) { o.Level = -1 },
		"steps=-2":          func(o *Options) { o.Steps = -2 },
		"dp=0":              func(o *Options) { o.Plans = []string{"dp=0"} },
		"dp=17":             func(o *Options) { o.Plans = []string{"dp=17"} },
		`config "giant"`:    func(o *Options) { o.Config = "giant" },
		"13 sequences":      func(o *Options) { o.Config, o.Plans = "odd", []string{"dp=14"} },
		"expect-ranks=-1":   func(o *Options) { o.ExpectRanks = -1 },
		"text blank: is em": func(o *Options) { o.Text.Name, o.Text.Bytes = "blank", []byte{} },
		"no backend":        func(o *Options) { o.Parts.Backend = nil },
	} {
		o := options()
		spoil(&o)
		_, err := Verify(t.Context(), []*suite.Suite{(&toy{}).contract()}, o)
		var wrong *OptionError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an OptionError with %q, got %v", want, err)
		}
	}
}

func TestFilesDoNotDecideHowMuchMemoryIsTaken(t *testing.T) {
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	judge := func() (*report.Report, error) {
		dir := t.TempDir()
		l := &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, World: 1, Spec: cfg.Recorded()}}
		if err := l.Save(dir); err != nil {
			t.Fatal(err)
		}
		return JudgeHistories(t.Context(), []string{dir}, []*suite.Suite{ddp.Suite()}, options())
	}
	cfg.Model.Layers = 1 << 20
	var wrong *OptionError
	if _, err := judge(); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "1048576 layers") {
		t.Errorf("a million layers: %v", err)
	}
	cfg.Model.Layers, cfg.Model.Vocab = 4, 1<<24
	r, err := judge()
	if err != nil || r.Verdict != contract.Inconclusive || !has(r.Notes, "too large") {
		t.Errorf("a vocabulary of %d: %v, %+v", cfg.Model.Vocab, err, r)
	}
}
