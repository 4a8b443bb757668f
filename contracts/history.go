package contracts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// maxLayers bounds the models whose histories are judged: clauses lay out every
// layer, and a file must not decide how much memory that takes.
const maxLayers = 1 << 12

// JudgeHistories judges the runs recorded below the directories: each is judged,
// serves another as its control, or is named as left out. Histories that verify
// saved are put together as the cases they were; any other training run is judged
// against its control, which is made here on o's backend where that can be: a run
// of one rank with the same specification that was recorded is compared with it,
// and stands in for it where golden has the same bits. Contracts for which the
// directories hold nothing are left out with a note, unless only one is asked for.
func JudgeHistories(ctx context.Context, dirs []string, cs []*suite.Suite, o Options) (*report.Report, error) {
	if err := Validate(cs); err != nil {
		return nil, err
	}
	if err := o.Check(nil); err != nil {
		return nil, err
	}
	histories, err := files.Await(ctx, func() ([]*trace.History, error) { return trace.Load(dirs...) })
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, trace.ErrMemory):
		return nil, err
	case err != nil:
		return nil, &OptionError{err}
	}
	j := &judgement{o: &o, engine: o.engine(), texts: o.again(), dirs: dirs, asked: cs, env: o.Environment, made: map[string]made{}}
	j.env.Histories = strings.Join(dirs, ", ")
	for _, h := range histories {
		r, err := read(h)
		if err != nil {
			return nil, &OptionError{fmt.Errorf("%s: a history of %s on %s: %w", h.Dir, h.Header.Model, h.Header.Plan, err)}
		}
		if r.config != nil && r.config.Model.Layers > maxLayers {
			return nil, &OptionError{fmt.Errorf("%s: a history of a model of %d layers: at most %d can be judged", h.Dir, r.config.Model.Layers, maxLayers)}
		}
		j.claims(r)
		j.mark(h)
		j.all = append(j.all, r)
	}
	var out []report.Contract
	var errs []error
	for _, c := range cs {
		begun := time.Now()
		sum, found, err := j.contract(ctx, c, len(cs) == 1)
		if err != nil && sum.ID == "" { // no control, and not for want of a text
			cause := context.Cause(ctx)
			if cause == nil {
				return nil, err
			}
			out, errs = append(out, notJudged(c.Contract, cause)), append(errs, cause)
			continue
		}
		sum.Seconds = time.Since(begun).Seconds()
		errs = append(errs, err)
		if found || !every(cs) { // what is asked for by name is not left out
			out = append(out, sum)
		} else {
			j.note("%s: %s holds no history that it judges", c.ID, j.env.Histories)
		}
	}
	left := j.left()
	if !j.env.Simulated() {
		j.env.Backend = strings.Join(slices.DeleteFunc([]string{j.env.Backend, j.simulated}, func(s string) bool { return s == "" }), ", ")
	}
	r := report.New(j.env, out)
	r.LeaveOut(left...)
	r.Notes = j.notes
	r.Explain()
	return r, errors.Join(errs...)
}

// every reports whether all contracts were asked for: then each judges what it can.
func every(cs []*suite.Suite) bool { return len(cs) >= len(All()) }

// notJudged is the report of a contract that there was no time for.
func notJudged(c *contract.Contract, cause error) report.Contract {
	results, _ := contract.Judge(context.Background(), c, nil) // of nothing, at once
	for i := range results {
		results[i].Doubts = append(results[i].Doubts, fmt.Sprintf("not judged: %v", cause))
	}
	return report.Summary(c, results)
}

// judgement is the state of one JudgeHistories.
type judgement struct {
	o      *Options
	engine *suite.Engine // of controls
	texts  contract.Texts
	dirs   []string
	asked  []*suite.Suite
	all    []*recorded
	made   map[string]made // controls made here, by what they are
	env    report.Environment
	notes  []string

	simulated string // the backend of some rank of some run, where that is on a simulated device
}

func (j *judgement) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(j.notes, n) {
		j.notes = append(j.notes, n)
	}
}

// contract judges all that the directories hold for c; found is whether that is
// anything.
func (j *judgement) contract(ctx context.Context, c *suite.Suite, only bool) (sum report.Contract, found bool, err error) {
	cases, doubts := j.saved(c)
	cases = append(cases, j.foreign(c, only && len(cases) == 0)...)
	var evidence []contract.Evidence
	lines := map[string]string{}
	for _, rc := range cases {
		beside, err := j.complete(ctx, c, rc)
		if err != nil {
			return report.Contract{}, false, err
		}
		for _, rc := range beside {
			e := j.evidence(rc)
			if rc.serves && (!only || len(cases) > 1) && !decides(ctx, c, e) {
				j.note("%s: %s serves other runs as their control; it is no evidence for this contract", c.ID, rc.runs[contract.Test].dir())
				continue
			}
			if t := rc.runs[contract.Test]; t != nil {
				doubts = append(doubts, j.absent(e.Name(), t.history)...)
				j.describe(t)
			}
			lines[e.Name()] = j.line(c)
			evidence = append(evidence, e)
		}
	}
	found = len(evidence) > 0 || len(doubts) > 0
	sum, err = summarise(ctx, shownOf(c, cases), evidence, doubts, lines)
	return sum, found, err
}

// line is the command that judges a contract's histories again.
func (j *judgement) line(c *suite.Suite) string {
	out := j.o.line()
	for _, dir := range j.dirs {
		out += " --history " + quote(dir)
	}
	return out + " --contract " + c.ID + j.o.machine()
}

// evidence is what a case's runs recorded. They are used thereby.
func (j *judgement) evidence(rc *recordedCase) contract.Evidence {
	e := contract.Evidence{Case: rc.name, In: rc.in, Histories: map[contract.Role]*trace.History{}, Clauses: rc.clauses, Doubts: rc.doubts, Oracle: j.o.Oracle, Texts: j.texts}
	for role, r := range rc.runs {
		e.Histories[role] = r.history
		r.used = true
	}
	return e
}

// decides reports whether some clause is violated by evidence, or all are held.
func decides(ctx context.Context, c *suite.Suite, e contract.Evidence) bool {
	results, err := judge(ctx, c.Contract, []contract.Evidence{e})
	if err != nil {
		return true // it is reported
	}
	is := func(v contract.Verdict) func(contract.Result) bool {
		return func(r contract.Result) bool { return r.Verdict() == v }
	}
	return slices.ContainsFunc(results, is(contract.Violated)) || !slices.ContainsFunc(results, is(contract.Inconclusive))
}

// mark has the report say it where any rank of a run was on a simulated device: of what is
// judged, of a control, also one made here, and of what is left out.
func (j *judgement) mark(h *trace.History) {
	for _, b := range h.Backends() {
		if on := (&report.Environment{Backend: b}); j.simulated == "" && on.Simulated() {
			j.simulated = b
		}
	}
}

// describe adds a judged run to the report's environment.
func (j *judgement) describe(t *recorded) {
	if j.env.Backend == "" {
		j.env.Backend = t.history.Header.Backend
	}
	if t.config != nil {
		addConfig(&j.env, *t.config)
		j.env.Text, j.env.TextHash = t.config.Text, t.config.TextHash
	}
	slices.Sort(j.env.Plans)
	if t.config != nil && t.config.Plan.Dims().DP == 1 {
		j.lost(t)
	}
}

// lost notes values that are not finite of a run without replicas. The clause that
// speaks of them is about replicas; what others make of them proves little.
func (j *judgement) lost(t *recorded) {
	var first *trace.Event
	for e := range t.history.All {
		if bad := e.Kind == trace.KindScalar && e.What == trace.Loss && e.Value-e.Value != 0 || e.Digest != nil && e.Digest.NonFinite > 0; bad && (first == nil || e.Step < first.Step) {
			first = &e
		}
	}
	if first != nil {
		j.note("%s: values that are not finite from step %d on, first in the %s on rank %d; C-DDP-001.7 speaks of them, of plans with replicas", t.dir(), first.Step, strings.TrimSpace(first.What+" "+first.Tensor), first.Rank)
	}
}

// absent says which of the ranks that must be there left no history.
func (j *judgement) absent(name string, h *trace.History) []string {
	n := j.o.ExpectRanks
	if n == 0 {
		return nil
	}
	if w := h.Header.World; w != n {
		return []string{fmt.Sprintf("case %s: a world of %d ranks, %d were expected", name, w, n)}
	}
	if m := h.Missing(); len(m) > 0 {
		return []string{fmt.Sprintf("case %s: ranks %s of the %d expected left no history", name, trace.Spans(m), n)}
	}
	return nil
}

// left names the runs that nothing was made of and that would have been evidence
// for what was asked; it notes the others.
func (j *judgement) left() []string {
	var out []string
	for _, r := range j.all {
		switch {
		case r.flaw != "":
			out = append(out, fmt.Sprintf("%s: %s", r.dir(), r.flaw))
		case r.contract != "" && !j.known(r.contract):
			out = append(out, fmt.Sprintf("%s: is of the contract %q, which is none here", r.dir(), r.contract))
		case r.misnamed:
			out = append(out, fmt.Sprintf("%s: is of the case %q of %s, which is none here, or of another run", r.dir(), r.name, r.contract))
		case r.used:
		case r.contract != "":
			j.note("%s: is of %s, which was not asked for", r.dir(), r.contract)
		default:
			j.note("%s: none of the contracts that were asked for is about this run", r.dir())
		}
	}
	return out
}

// known reports whether a contract is one of all, or of those that were asked for.
func (j *judgement) known(id string) bool {
	is := func(c *suite.Suite) bool { return c.ID == id }
	return slices.ContainsFunc(j.asked, is) || slices.ContainsFunc(All(), is)
}
