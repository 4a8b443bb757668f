// Package contract is the vocabulary of contracts: a Contract is a value with
// clauses, cases to run and mutants that prove each clause can fail. Clauses
// are pure functions over recorded histories, so Judge works on the histories
// of any trainer.
package contract

import (
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
	// Lacks says what a run did not record without which the contract has nothing to
	// judge; empty where it has. A recorded run that lacks it is left out where several
	// contracts are asked for. nil is nothing.
	Lacks func(*trace.History) string
	// Control is what a run of a configuration is judged against where no case
	// says so: a run that was recorded elsewhere. nil is the single worker on the
	// same global batch.
	Control func(spec.Config) spec.Config
	// Again is the clause of the contract that compares a run with the same one again,
	// empty where none does. A run of one rank that was recorded elsewhere, which has
	// no other control, is judged by it beside a run that is made here.
	Again string
	// Elements says that a clause reads the elements of the control: one that was
	// recorded without them does not do, where another can be made.
	Elements bool
}

// Clause is one checkable sentence of a contract.
type Clause struct {
	ID    string // "C-DDP-001.3"
	Says  string // the sentence
	Class Class
	Reads string // which events it reads
	Phase Phase  // when in a step that happens which it is about, of findings that name no phase
	// Derivation says how the bound of a Bound clause, or of an Exact one on a plan
	// where exactness is not on offer, is derived; empty where there is none.
	Derivation string
	// Check reads the evidence in p: it expects the amount of evidence that the plan
	// implies, notes what was found and reports each violation. Compare, Found and
	// Count do so piece by piece; Expect, Saw and Report are what they stand on.
	Check func(p *Pass)
}

// Numbered makes the clauses of a contract, each from its number, sentence, evidence,
// class and check.
func Numbered(contractID string) func(n, says, reads string, class Class, check func(*Pass)) *Clause {
	return func(n, says, reads string, class Class, check func(*Pass)) *Clause {
		return &Clause{ID: contractID + "." + n, Says: says, Class: class, Reads: reads, Check: check}
	}
}

// Role names a run within a case.
type Role string

// The roles that several contracts use.
const (
	Test    Role = "test"    // the run that is judged
	Control Role = "control" // what the test is compared with, as a rule the single worker on the same global batch
	Again   Role = "again"   // the test once more
	Other   Role = "other"   // the test with another seed
	// Golden stands for a run of which hashes are kept: a finding against it.
	Golden Role = "golden"
)

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
	Case  string `json:"case"`
	Rank  int    `json:"rank"`            // world rank; -1 where none is to blame
	Place string `json:"place,omitempty"` // of the rank on the axes of the plan
	// Host and Device are where the rank ran, as its history says.
	Host   string `json:"host,omitempty"`
	Device string `json:"device,omitempty"`
	Step   int    `json:"step"`
	Phase  Phase  `json:"phase,omitempty"` // of the step
	Tensor string `json:"tensor,omitempty"`
	Index  int64  `json:"index"` // element of the tensor; -1 where unknown
	Got    string `json:"got,omitempty"`
	Want   string `json:"want,omitempty"`
	// Ratio is got over want; NormRatio that of the norms of the whole tensors, by
	// which a factor shows. 0 is unknown.
	Ratio     trace.Float `json:"ratio,omitempty"`
	NormRatio trace.Float `json:"norm_ratio,omitempty"`
	// Like names another tensor that has what was got.
	Like string `json:"like,omitempty"`
	// Against is the run that want is of, where it is not a rule that is broken: a
	// difference does not say which of the two is wrong. Of is the run that is wrong,
	// where it is not the test run.
	Against Role   `json:"against,omitempty"`
	Of      Role   `json:"of,omitempty"`
	Bound   string `json:"bound,omitempty"` // observed / bound and its derivation
	Message string `json:"message"`
	// More counts other findings of the clause that say the same of other places; Ranks
	// are those of all of them, the first ones, where there are several.
	More  int   `json:"more,omitempty"`
	Ranks []int `json:"ranks,omitempty"`
	// Reproduce is the command line that shows it again.
	Reproduce string `json:"reproduce,omitempty"`
	// Order is where in its phase the computation has it.
	Order int `json:"-"`
}
