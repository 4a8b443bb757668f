// Package contract is the vocabulary of contracts: a Contract is a value with
// clauses, cases to run and mutants that prove each clause can fail. Clauses
// are pure functions over recorded histories, so Judge works on the histories
// of any trainer.
package contract

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Class says how a clause compares.
type Class string

// The classes.
const (
	Exact   Class = "exact"   // bit equality
	Integer Class = "integer" // integer arithmetic: counts, sizes, orders
	Bound   Class = "bound"   // within a bound derived from the computed magnitudes
)

// Contract is a named statement about training, made checkable.
type Contract struct {
	ID        string // "C-DDP-001"; directory, label, golden and report use it
	Title     string
	Statement string // one sentence
	Doc       string // what --explain prints: why, how judged, which faults it finds
	Clauses   []*Clause
	// Judges reports whether the contract is about a plan; nil is every plan. A
	// contract that is not is left out where several are asked for.
	Judges func(plan.Plan) bool
	// Control is what a run of a configuration is judged against where no case
	// says so: a run that was recorded elsewhere. nil is the single worker on the
	// same global batch.
	Control func(spec.Config) spec.Config
	// Cases lists what to run at a level (1 seconds, 2 minutes, 3 soak).
	Cases func(Options) []Case
	// Mutants are broken runs; each names the clause that must catch it.
	Mutants []Mutant
}

// Options narrow the cases of a contract; zero values mean the contract's own
// choice.
type Options struct {
	Level   int
	Plans   []string // plans to test, in plan.Parse's grammar
	Config  string   // a named model configuration
	Seed    uint64
	Steps   int
	Backend string
	Text    data.Text // the training text of cases that are not golden
}

// Clause is one checkable sentence of a contract.
type Clause struct {
	ID       string // "C-DDP-001.3"
	Says     string // the sentence
	Class    Class
	Evidence string // which events it reads
	// Bounded says how a Bound, or an Exact clause on a plan where exactness
	// is not on offer, is derived; empty where it never is.
	Derivation string
	// Check reads the evidence in p. It first calls p.Expect with the amount of
	// evidence that the plan implies, then p.Saw for what it found, and
	// p.Report for each violation.
	Check func(p *Pass)
}

// Case is one thing to run and judge: named runs whose histories the clauses
// read together.
type Case struct {
	Name string // "nano dp=2", unique in its contract
	Runs map[Role]Run
	// Clauses that this case is evidence for; nil is all of the contract's.
	Clauses []string
}

// Role names a run within a case.
type Role string

// The roles that several contracts use.
const (
	Test    Role = "test"    // the run that is judged
	Control Role = "control" // what the test is compared with, as a rule the single worker on the same global batch
	Again   Role = "again"   // the test once more
	Other   Role = "other"   // the test with another seed
)

// Run makes one history. Key identifies its result: runs of equal keys are done
// once and shared; an empty key is never shared.
type Run struct {
	Key string
	// Alone asks that nothing else runs meanwhile: the run changes, or depends on,
	// what belongs to the whole process, such as the number of threads.
	Alone bool
	// Config is the training run; where Do makes the history, the configuration that
	// it trains, nil for a run that is not training.
	Config *spec.Config
	// Parts decorates the run's parts (mutants); nil leaves them.
	Parts func(*launch.Parts)
	// Do makes the history of a run that is not training (a drill), or not training
	// alone (one that is resumed).
	Do func(ctx context.Context, env Env) (*trace.History, error)
}

// Env is what a run needs of its surroundings.
type Env struct {
	Parts launch.Parts // how backends and communicators are made
	Text  func(name string) (data.Text, error)
}

// Mutant is a broken run: Break changes a case's test run so that the clause it
// names must be violated.
type Mutant struct {
	ID     string // "skip-block-reduction", unique in its contract
	Clause string // the clause that must catch it
	Says   string // what is broken, and the public bug it resembles
	On     string // name of the case it is applied to
	Break  func(*Case)
}

// Verdict is the outcome of a clause or contract. The zero value is
// Inconclusive: no evidence is never a pass.
type Verdict uint8

// The verdicts.
const (
	Inconclusive Verdict = iota
	Held
	Violated
)

// String is the verdict's word in reports.
func (v Verdict) String() string {
	switch v {
	case Held:
		return "held"
	case Violated:
		return "violated"
	}
	return "inconclusive"
}

// MarshalText is String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Worse is the verdict of two parts together: violated wins, then inconclusive.
func (v Verdict) Worse(o Verdict) Verdict {
	switch {
	case v == Violated || o == Violated:
		return Violated
	case v == Inconclusive || o == Inconclusive:
		return Inconclusive
	}
	return Held
}

// Finding is one violation, with what is needed to find its cause.
type Finding struct {
	Case    string `json:"case"`
	Rank    int    `json:"rank"` // world rank; -1 where none is to blame
	Step    int    `json:"step"`
	Tensor  string `json:"tensor,omitempty"`
	Index   int64  `json:"index"` // element of the tensor; -1 where unknown
	Got     string `json:"got,omitempty"`
	Want    string `json:"want,omitempty"`
	Bound   string `json:"bound,omitempty"` // observed / bound and its derivation
	Message string `json:"message"`
	// Reproduce is the command line that shows it again.
	Reproduce string `json:"reproduce,omitempty"`
}
