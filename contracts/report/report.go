// Package report is what a verification found, and how it is written: as text
// for people, as JSON for programs (schema.json) and as JUnit XML for CI.
//
// A report is a value built from the results of contract.Judge. Writers are
// pure: the same report gives the same bytes.
package report

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Schema names the JSON form of a Report.
const Schema = "lockstep/report/v1"

// Report is the outcome of a verification or, where SelfTest is set, of running
// the contracts' mutants.
type Report struct {
	Schema   string           `json:"schema"`
	Verdict  contract.Verdict `json:"verdict"`
	SelfTest bool             `json:"self_test,omitempty"`
	// Cause is the most likely one of a violation, as Explain finds it.
	Cause *Cause `json:"cause,omitempty"`
	// Controls are those that are wrong themselves.
	Controls    []Control   `json:"controls,omitempty"`
	Environment Environment `json:"environment"`
	Contracts   []Contract  `json:"contracts"`
	Seconds     float64     `json:"seconds,omitempty"` // from begin to end
	// Notes say what the verdicts do not: runs that ended early, controls that
	// could not be made.
	Notes []string `json:"notes,omitempty"`
	// Devices are those on which ranks computed. A finding of one makes the verdict
	// violated, whatever the contracts came to; one that nobody looked at is no finding
	// and no pass.
	Devices []Device `json:"devices,omitempty"`
	// LeftOut names what was asked for and not judged: recorded runs that nothing was
	// made of, contracts that do nothing of what is asked for. With one of them nothing
	// is held.
	LeftOut []string `json:"left_out,omitempty"`
}

// Contract is the outcome of one contract: the worst of its clauses.
type Contract struct {
	ID      string           `json:"id"`
	Title   string           `json:"title"`
	Verdict contract.Verdict `json:"verdict"`
	Clauses []Clause         `json:"clauses"`
	// Seconds is the time of its runs, one after the other, and of judging them; a
	// run that several contracts share counts for the first.
	Seconds float64 `json:"seconds,omitempty"`
}

// Clause is the outcome of one clause over all its cases.
type Clause struct {
	ID      string           `json:"id"`
	Says    string           `json:"says"`
	Verdict contract.Verdict `json:"verdict"`
	Class   contract.Class   `json:"class"`
	// Saw and Expected count pieces of evidence; in a self-test, mutants caught
	// and mutants in all.
	Saw      int `json:"saw"`
	Expected int `json:"expected"`
	// MaxRatio is the largest observed / bound; 0 where nothing was bounded.
	MaxRatio trace.Float `json:"max_ratio,omitempty"`
	// Found counts all violations, in Cases; Findings holds the first of each kind.
	Found    int                `json:"found"`
	Cases    []string           `json:"cases,omitempty"`
	Findings []contract.Finding `json:"findings"`
	Doubts   []string           `json:"doubts,omitempty"`
	Mutants  []Mutant           `json:"mutants,omitempty"`
}

// Outcome is what became of a mutant.
type Outcome string

// The outcomes; every other than Caught fails a self-test, but for generated
// faults that were refused or changed nothing.
const (
	Caught     Outcome = "caught"           // the clause it names is violated, where it must be
	Misplaced  Outcome = "wrong place"      // the clause is violated, and names another place
	GoldenOnly Outcome = "golden hash only" // no clause sees it but the comparison with the golden hash
	Survived   Outcome = "survived"         // the run differs, the clause did not see it
	Refused    Outcome = "refused"          // no clause sees it; the run itself ended in an error
	Nothing    Outcome = "changed nothing"  // the broken run equals the unbroken one
	Unclear    Outcome = "proves nothing"   // the unbroken run violates a clause too
	NotRun     Outcome = "not run"
)

// Mutant is the outcome of one mutant in a self-test.
type Mutant struct {
	ID      string  `json:"id"`
	On      string  `json:"on"`
	Says    string  `json:"says"`
	Outcome Outcome `json:"outcome"`
	// Detail is the first finding's message of a mutant that was caught, or why
	// it was not.
	Detail string `json:"detail,omitempty"`
	// Rows are those of the catalogue of public bugs that it stands for.
	Rows []string `json:"rows,omitempty"`
	// Seen lists the clauses of all contracts that its run violates.
	Seen []string `json:"seen,omitempty"`
	// Late is the last step, of the last and the second of its run, in which it may
	// begin so that the clause that must name it does; 0 for none, nothing where the
	// run has one step or the mutant ends it before its last.
	Late *int `json:"late,omitempty"`
}

// New builds the report of contracts already summarised; it sets the verdict to
// the worst of theirs. Without contracts there is no evidence.
func New(env Environment, contracts []Contract) *Report {
	r := &Report{Schema: Schema, Environment: env, Contracts: contracts}
	r.settle()
	return r
}

// settle derives the verdicts of contracts and report from the clauses.
func (r *Report) settle() {
	for i := range r.Contracts {
		c := &r.Contracts[i]
		c.Verdict = worst(c.Clauses, func(cl Clause) contract.Verdict { return cl.Verdict })
	}
	r.Verdict = worst(r.Contracts, func(c Contract) contract.Verdict { return c.Verdict })
	if len(r.LeftOut) > 0 {
		r.Verdict = r.Verdict.Worse(contract.Inconclusive)
	}
	if len(r.faulty()) > 0 {
		r.Verdict = contract.Violated
	}
}

// LeaveOut names what was asked for and not judged.
func (r *Report) LeaveOut(runs ...string) {
	r.LeftOut = append(r.LeftOut, runs...)
	r.settle()
}

// worst is the worst verdict of parts; none are no evidence.
func worst[T any](parts []T, of func(T) contract.Verdict) contract.Verdict {
	if len(parts) == 0 {
		return contract.Inconclusive
	}
	v := contract.Held
	for _, p := range parts {
		v = v.Worse(of(p))
	}
	return v
}

// Summary turns the results of contract.Judge into the report of a contract; its
// verdict is New's to set.
func Summary(c *contract.Contract, results []contract.Result) Contract {
	out := Contract{ID: c.ID, Title: c.Title}
	for i := range results {
		r := &results[i]
		out.Clauses = append(out.Clauses, Clause{
			ID: r.Clause.ID, Says: r.Clause.Says, Class: r.Clause.Class,
			Verdict: r.Verdict(), Saw: r.Saw, Expected: r.Expected, MaxRatio: trace.Float(r.MaxRatio),
			Found: r.Total, Cases: r.Cases, Findings: append([]contract.Finding{}, r.Findings...), Doubts: distinct(r.Doubts),
		})
	}
	return out
}

// distinct keeps the first of equal strings.
func distinct(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Add merges the report of another repetition of the same contracts: evidence
// and findings add up, verdicts become the worse ones.
func (r *Report) Add(o *Report) {
	r.Environment.Repetitions = max(1, r.Environment.Repetitions) + max(1, o.Environment.Repetitions)
	r.Notes = distinct(append(r.Notes, o.Notes...))
	r.LeftOut = distinct(append(r.LeftOut, o.LeftOut...))
	for _, oc := range o.Contracts {
		i := slices.IndexFunc(r.Contracts, func(c Contract) bool { return c.ID == oc.ID })
		if i < 0 {
			r.Contracts = append(r.Contracts, oc)
			continue
		}
		r.Contracts[i].Seconds += oc.Seconds
		for j := range min(len(r.Contracts[i].Clauses), len(oc.Clauses)) {
			r.Contracts[i].Clauses[j].add(oc.Clauses[j])
		}
	}
	for _, c := range o.Controls {
		r.blame(c)
	}
	r.settle()
	if r.Cause != nil || o.Cause != nil {
		r.Explain()
	}
}

func (c *Clause) add(o Clause) {
	c.Verdict = c.Verdict.Worse(o.Verdict)
	c.Saw += o.Saw
	c.Expected += o.Expected
	c.MaxRatio = max(c.MaxRatio, o.MaxRatio)
	c.Found += o.Found
	c.Findings = contract.Join(c.Findings, o.Findings)
	c.Cases = distinct(append(c.Cases, o.Cases...))
	c.Doubts = distinct(append(c.Doubts, o.Doubts...))
}
