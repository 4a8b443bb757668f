package contract

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
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
	f.Host, f.Device = p.origin(f)
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

// run is the history that a finding's rank is of; nil where there is none.
func (p *Pass) run(f Finding) *trace.History {
	h := p.Histories[cmp.Or(f.Of, Test)]
	if h == nil || f.Rank < 0 || f.Rank >= h.Header.World {
		return nil
	}
	return h
}

// origin is where a finding's rank ran, as far as its history says.
func (p *Pass) origin(f Finding) (host, device string) {
	h := p.run(f)
	if h == nil {
		return "", ""
	}
	o := h.Origin(f.Rank)
	return o.Host, o.Device
}

// place is where a finding's rank is on the axes of the plan, where that has
// several.
func (p *Pass) place(f Finding) string {
	h := p.run(f)
	if h == nil {
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
