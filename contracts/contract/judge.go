package contract

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/guard"
)

// Pass is one clause looking at one case.
type Pass struct {
	Clause    *Clause
	Case      string
	Histories map[Role]*trace.History
	// Oracle evaluates the reference at recorded weights; nil where the caller
	// offers none (bounded judgements are then inconclusive).
	Oracle Oracle
	// Texts opens a training text by the name that a configuration gives; nil where
	// the caller has none.
	Texts Texts
	// Fresh says that the runs were made by who judges them, now.
	Fresh bool

	ctx    context.Context
	memo   *memo
	calls  int               // of Expect
	name   string            // of the evidence, where it is not the case's
	doubts map[Role][]string // of histories
	result Result
	kept   []kept // of the result's findings, in their order
}

// memo is what was made of histories for the clauses of one judgement.
type memo struct {
	mu   sync.Mutex
	made map[*trace.History]func() (any, error)
}

// Once is what make makes of a history: once for all clauses that are judged together,
// which must not change it.
func (p *Pass) Once(h *trace.History, make func() (any, error)) (any, error) {
	if p.memo == nil {
		return make()
	}
	p.memo.mu.Lock()
	once := p.memo.made[h]
	if once == nil {
		once = sync.OnceValues(make)
		p.memo.made[h] = once
	}
	p.memo.mu.Unlock()
	return once()
}

// Texts gives the bytes of a training text by the name that a configuration
// gives. The bytes are not the caller's to change.
type Texts func(name string) ([]byte, error)

// OtherText is a text that is not the one a run was given.
type OtherText struct {
	Name   string
	Bytes  int    // of the text that has the name
	SHA256 string // its
	Given  string // that of the text that the run was given
}

// Error says of both what they are.
func (o *OtherText) Error() string {
	return fmt.Sprintf("text %s has %d bytes with SHA-256 %.12s, the run was given one with %.12s", o.Name, o.Bytes, o.SHA256, o.Given)
}

// Text is the training text of a run: the bytes whose SHA-256 cfg names. The error
// is an OtherText where the text of that name is another.
func (p *Pass) Text(cfg spec.Config) ([]byte, error) {
	if p.Texts == nil {
		return nil, errors.New("no training text to compare with")
	}
	text, err := p.Texts(cfg.Text)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); got != cfg.TextHash {
		return nil, &OtherText{cfg.Text, len(text), got, cfg.TextHash}
	}
	return text, nil
}

// State holds the elements of weights and moments: by What of package trace
// (Weight, MomentM, ...), then by parameter name.
type State map[string]map[string][]float32

// Oracle answers what a step does at given weights. It is safe for concurrent
// use.
type Oracle interface {
	// Gradient evaluates the step's gradient of the run of a validated cfg, at
	// the recorded weights (by parameter name), in float64, with an elementwise
	// bound on the error of any float32 evaluation of it. It may add the mean
	// loss under trace.Loss.
	Gradient(cfg spec.Config, step int, weights map[string][]float32) (map[string]Bounded, error)
	// Update is the state after the optimizer step that follows taken others,
	// given the reduced gradient (by parameter name, before clipping). It
	// changes none of its arguments.
	Update(cfg spec.Config, taken int, before State, grad map[string][]float32) (State, error)
}

// Bounded is an exact value per element with the error bound that any float32
// evaluation in any order of summation satisfies.
type Bounded struct{ Value, Bound []float64 }

// Expect adds n to the amount of evidence that the plan implies. It does not return
// where nobody waits for the judgement any more.
func (p *Pass) Expect(n int) {
	const now = 1 << 8 // and then is often enough
	if p.calls++; p.calls%now == 0 && p.ctx != nil && p.ctx.Err() != nil {
		panic(stopped{})
	}
	p.result.Expected += n
}

// stopped is what a check that is given up panics with, for its caller.
type stopped struct{}

// Saw adds n to the amount of evidence found.
func (p *Pass) Saw(n int) { p.result.Saw += n }

// Report adds a violation; Case, and where it is not said Phase, are filled in. The
// first of each kind is kept, in the order of Compare, and otherwise in that of the
// reports: what comes first is the cause, and later ones its consequences.
func (p *Pass) Report(f Finding) { p.ReportLater(f, nil) }

// ReportLater is Report of a finding that complete adds to, if it is one of those
// that are kept; nil adds nothing.
func (p *Pass) ReportLater(f Finding, complete func(*Finding)) {
	f.Case = cmp.Or(p.name, p.Case)
	if f.Phase == Unphased {
		if p.Clause != nil {
			f.Phase = p.Clause.Phase
		}
		if f.Step < 0 && f.Phase != Drilled {
			f.Phase = Initial
		}
	}
	p.result.Total++
	p.kept = keep(p.kept, kept{f, f.kind(), complete})
}

// Doubt says why the evidence does not suffice; the clause is then inconclusive
// unless it is violated.
func (p *Pass) Doubt(format string, args ...any) {
	p.result.Doubts = append(p.result.Doubts, fmt.Sprintf(format, args...))
}

// Doubtful reports whether some doubt begins so.
func (p *Pass) Doubtful(begins string) bool {
	return slices.ContainsFunc(p.result.Doubts, func(d string) bool { return strings.HasPrefix(d, begins) })
}

// Ratio records an observed / bound of a bounded comparison.
func (p *Pass) Ratio(x float64) { p.result.MaxRatio = max(p.result.MaxRatio, x) }

// History is the history of a role; where it is missing the pass doubts and ok
// is false. Where ranks left none, or one that is cut off, the pass doubts: what
// is there may violate the clause, and nothing holds it.
func (p *Pass) History(r Role) (h *trace.History, ok bool) {
	h, ok = p.Histories[r]
	if !ok || h == nil {
		p.Doubt("no history of the %s run", r)
		return nil, false
	}
	p.result.Doubts = append(p.result.Doubts, p.doubts[r]...)
	for _, d := range h.Damage {
		p.Doubt("%s run: %s", r, d)
	}
	if m := h.Missing(); len(m) > 0 {
		p.Doubt("%s run: no history of ranks %s of %d", r, trace.Spans(m), h.Header.World)
	}
	if why := h.CutOff(); why != "" {
		p.Doubt("%s run: %s", r, why)
	}
	return h, true
}

// Result is what one clause made of one case, or of all cases together.
type Result struct {
	Clause   *Clause
	Saw      int
	Expected int
	Findings []Finding // the first of each kind
	Total    int       // findings in all
	Cases    []string  // those with findings
	Doubts   []string  // why evidence does not suffice
	MaxRatio float64   // largest observed / bound, 0 where nothing was bounded
	// Panics are those of the clause's check, each with a doubt that says so.
	Panics []error
}

// Verdict is violated with any finding, inconclusive with doubts or less
// evidence than expected or none expected, else held.
func (r *Result) Verdict() Verdict {
	switch {
	case r.Total > 0:
		return Violated
	case len(r.Doubts) > 0 || r.Expected <= 0 || r.Saw < r.Expected:
		return Inconclusive
	}
	return Held
}

// Merge adds what the same clause made of another case.
func (r *Result) Merge(o Result) {
	r.Saw += o.Saw
	r.Expected += o.Expected
	r.Total += o.Total
	r.Findings = Join(r.Findings, o.Findings)
	r.Cases = append(r.Cases, o.Cases...)
	r.Doubts = append(r.Doubts, o.Doubts...)
	r.Panics = append(r.Panics, o.Panics...)
	r.MaxRatio = max(r.MaxRatio, o.MaxRatio)
}

// Evidence is a case's histories, ready to be judged.
type Evidence struct {
	Case      string
	In        string // tells it from other evidence of the case, in findings and doubts; may be empty
	Histories map[Role]*trace.History
	Clauses   []string // clauses it is evidence for; nil is all
	// Doubts say why the history of a role proves little: they are those of the clauses
	// that read it.
	Doubts map[Role][]string
	Oracle Oracle
	Texts  Texts
	// Fresh says that whoever judges made the runs, just now: what they were given
	// by name has not become another since.
	Fresh bool
}

// Name is the evidence's in findings and doubts.
func (e *Evidence) Name() string {
	if e.In == "" {
		return e.Case
	}
	return e.Case + " in " + e.In
}

// Judge applies every clause of c to every piece of evidence: one result per
// clause, in the contract's order. It is pure: it reads histories only. Clauses
// are checked side by side; one that panics on a piece of evidence is inconclusive,
// and its Result has the panic. When ctx ends so does Judge, whatever its clauses are
// at; the error is ctx's cause. They end at the next piece of evidence, and read the
// histories until then.
func Judge(ctx context.Context, c *Contract, evidence []Evidence) ([]Result, error) {
	parts := make([][]Result, len(c.Clauses))
	for i := range parts {
		parts[i] = make([]Result, len(evidence))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		checkAll(ctx, c, evidence, parts)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out := make([]Result, len(c.Clauses))
	for i, cl := range c.Clauses {
		out[i].Clause = cl
		for _, r := range parts[i] {
			out[i].Merge(r)
		}
	}
	return out, nil
}

// checkAll fills in parts, by clause and piece of evidence, until ctx ends.
func checkAll(ctx context.Context, c *Contract, evidence []Evidence, parts [][]Result) {
	var checks errgroup.Group
	m := &memo{made: map[*trace.History]func() (any, error){}}
	checks.SetLimit(runtime.GOMAXPROCS(0))
	for i, cl := range c.Clauses {
		for j, e := range evidence {
			if ctx.Err() == nil && (e.Clauses == nil || slices.Contains(e.Clauses, cl.ID)) {
				checks.Go(func() error {
					parts[i][j] = check(ctx, cl, e, m)
					return nil
				})
			}
		}
	}
	_ = checks.Wait() // what a check comes to is its result
}

// check applies a clause to one piece of evidence. What it found before it panicked
// stays.
func check(ctx context.Context, cl *Clause, e Evidence, m *memo) Result {
	p := &Pass{memo: m, Clause: cl, Case: e.Case, name: e.Name(), doubts: e.Doubts, Histories: e.Histories, Oracle: e.Oracle, Texts: e.Texts, Fresh: e.Fresh, ctx: ctx}
	err := guard.Do(func() error { cl.Check(p); return nil })
	if caught := (*guard.Panic)(nil); errors.As(err, &caught) && caught.Value == any(stopped{}) {
		return p.result // Judge has given it up
	}
	if err != nil {
		p.result.Panics = append(p.result.Panics, fmt.Errorf("%s on case %s: %w", cl.ID, e.Case, err))
		p.Doubt("case %s: the check broke down: %v", e.Case, err)
	}
	if p.result.Findings = p.findings(); p.result.Total > 0 {
		p.result.Cases = []string{e.Case}
	}
	// A case with less evidence than it owes must not hide behind another case's
	// surplus.
	if p.result.Saw < p.result.Expected {
		p.Doubt("case %s: saw %d of %d", e.Name(), p.result.Saw, p.result.Expected)
	}
	return p.result
}

// place is where a finding's rank is on the axes of the plan, where that has
// several.
func (p *Pass) place(f Finding) string {
	role := f.Of
	if role == "" {
		role = Test
	}
	h := p.Histories[role]
	if h == nil || f.Rank < 0 || f.Rank >= h.Header.World {
		return ""
	}
	cfg, err := spec.Of(h.Header.Spec)
	if err != nil {
		return ""
	}
	dims, used := cfg.Plan.Dims(), 0
	for _, n := range []int{dims.DP, dims.PP, dims.TP} {
		if n > 1 {
			used++
		}
	}
	if used < 2 || cfg.Plan.World() != h.Header.World {
		return ""
	}
	at := dims.Coord(f.Rank)
	return fmt.Sprintf("dp %d, pp %d, tp %d", at.DP, at.PP, at.TP)
}
