package contract

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/guard"
)

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
