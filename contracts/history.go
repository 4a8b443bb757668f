package contracts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// maxLayers bounds the models whose histories are judged: clauses lay out every
// layer, and a file must not decide how much memory that takes.
const maxLayers = 1 << 12

// recorded is a history from a file, with what its header says.
type recorded struct {
	history  *trace.History
	config   *spec.Config // nil where the run was no training
	contract string       // from the header's case; empty where it has none
	name     string
	role     contract.Role
}

// recordedCase is one case made of recorded runs.
type recordedCase struct {
	name    string
	runs    map[contract.Role]*recorded
	clauses []string
}

// JudgeHistories judges the runs recorded below dir. Histories that verify
// saved are put together as the cases they were; any other training run of
// several ranks is judged against its control: a run of one rank with the same
// specification in dir, else one that is made here on o's backend when the text
// is available. Contracts for which dir holds nothing are left out with a note,
// unless only one is asked for.
func JudgeHistories(ctx context.Context, dir string, cs []*suite.Suite, o Options) (*report.Report, error) {
	if err := Validate(cs); err != nil {
		return nil, err
	}
	if err := o.Check(nil); err != nil {
		return nil, err
	}
	histories, err := load(ctx, append([]string{dir}, o.Also...)...)
	if err != nil {
		return nil, err
	}
	j := &judgement{o: &o, engine: o.engine(), texts: o.again(), dir: dir, env: o.Environment, controls: map[string]*recorded{}}
	j.env.Histories = strings.Join(append([]string{dir}, o.Also...), ", ")
	for _, h := range histories {
		r, err := read(h)
		if err != nil {
			return nil, &OptionError{fmt.Errorf("%s: a history of %s on %s: %w", dir, h.Header.Model, h.Header.Plan, err)}
		}
		if r.config != nil && r.config.Model.Layers > maxLayers {
			return nil, &OptionError{fmt.Errorf("%s: a history of a model of %d layers: at most %d can be judged", dir, r.config.Model.Layers, maxLayers)}
		}
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
		if found || len(cs) == 1 {
			out = append(out, sum)
		} else {
			j.note("%s: %s holds no history that it judges", c.ID, dir)
		}
	}
	r := report.New(j.env, out)
	r.Notes = j.notes
	return r, errors.Join(errs...)
}

// notJudged is the report of a contract that there was no time for.
func notJudged(c *contract.Contract, cause error) report.Contract {
	results, _ := contract.Judge(context.Background(), c, nil) // of nothing, at once
	for i := range results {
		results[i].Doubts = append(results[i].Doubts, fmt.Sprintf("not judged: %v", cause))
	}
	return report.Summary(c, results)
}

// load reads the histories below directories, each of which must hold one, until
// ctx ends: files may be large. Other errors are the options'.
func load(ctx context.Context, dirs ...string) ([]*trace.History, error) {
	type loaded struct {
		all []*trace.History
		err error
	}
	done := make(chan loaded, 1)
	go func() {
		var l loaded
		for _, dir := range dirs {
			all, err := trace.Load(dir)
			if err != nil {
				l.err = err
				break
			}
			l.all = append(l.all, all...)
		}
		done <- l
	}()
	select {
	case l := <-done:
		if l.err != nil {
			return nil, &OptionError{l.err}
		}
		return l.all, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// reproduce is the command line that judges c again.
func (j *judgement) reproduce(c *suite.Suite) string {
	s := "verify"
	for _, dir := range append([]string{j.dir}, j.o.Also...) {
		s += " --history " + quote(dir)
	}
	return s + " --contract " + c.ID + j.o.machine()
}

// read classifies a history.
func read(h *trace.History) (*recorded, error) {
	r := &recorded{history: h}
	if h.Header.Spec.Lockstep != nil {
		c, err := spec.Of(h.Header.Spec)
		if err != nil {
			return nil, err
		}
		r.config = &c
	}
	r.contract, r.name, r.role = suite.Tag(h.Header.Case)
	return r, nil
}

// judgement is the state of one JudgeHistories.
type judgement struct {
	o        *Options
	engine   *suite.Engine // of controls
	texts    contract.Texts
	dir      string
	all      []*recorded
	controls map[string]*recorded // made here, by specification; nil where impossible
	env      report.Environment
	notes    []string
}

func (j *judgement) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(j.notes, n) {
		j.notes = append(j.notes, n)
	}
}

// contract judges all that dir holds for c.
func (j *judgement) contract(ctx context.Context, c *suite.Suite, only bool) (report.Contract, bool, error) {
	cases := j.saved(c)
	if len(cases) == 0 {
		cases = j.foreign(c, only)
	}
	var evidence []contract.Evidence
	var doubts []string
	lines := map[string]string{}
	for _, rc := range cases {
		if err := j.complete(ctx, c, rc); err != nil {
			return report.Contract{}, false, err
		}
		e := contract.Evidence{Case: rc.name, Histories: map[contract.Role]*trace.History{}, Clauses: rc.clauses, Oracle: j.o.Oracle, Texts: j.texts}
		for role, r := range rc.runs {
			e.Histories[role] = r.history
		}
		if t := rc.runs[contract.Test]; t != nil {
			doubts = append(doubts, j.absent(rc.name, t.history)...)
			j.describe(t)
		}
		lines[rc.name] = j.reproduce(c)
		evidence = append(evidence, e)
	}
	sum, err := summarise(ctx, c.Contract, evidence, doubts, lines)
	return sum, len(evidence) > 0, err
}

// describe adds a judged run to the report's environment.
func (j *judgement) describe(t *recorded) {
	h := t.history.Header
	j.env.Backend = cmp.Or(j.env.Backend, h.Backend)
	if t.config != nil {
		addConfig(&j.env, *t.config)
		j.env.Text, j.env.TextHash = t.config.Text, t.config.TextHash
	}
	slices.Sort(j.env.Plans)
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

// saved puts the histories that verify saved for c together again.
func (j *judgement) saved(c *suite.Suite) []*recordedCase {
	var out []*recordedCase
	for _, r := range j.all {
		if r.contract != c.ID {
			continue
		}
		i := slices.IndexFunc(out, func(rc *recordedCase) bool { return rc.name == r.name })
		if i < 0 {
			rc := &recordedCase{name: r.name, runs: map[contract.Role]*recorded{}}
			if cs, ok := j.known(c, r); ok {
				rc.clauses = cs.Clauses
			}
			out, i = append(out, rc), len(out)
		}
		out[i].runs[r.role] = r
	}
	return out
}

// known finds the case of c that a recorded run is of, at any level: one of the
// contract's own, or one on the configuration and plan of the run.
func (j *judgement) known(c *suite.Suite, r *recorded) (suite.Case, bool) {
	if whole, err := Find(c.ID); err == nil && c.Part {
		c = whole // a case that is no evidence for its clauses is known all the same
	}
	asked := []suite.Options{j.o.Options}
	if r.config != nil {
		own := j.o.Options
		own.Config = r.config.Model.Name
		if _, err := spec.Preset(own.Config); err != nil {
			mine := *r.config
			mine.Plan = plan.Plan{}
			own.Own = &mine
		}
		short, full := own, own
		short.Plans, full.Plans = []string{given(*r.config).String()}, []string{r.config.Plan.String()}
		asked = append(asked, own, short, full)
	}
	for _, o := range asked {
		for o.Level = 1; o.Level <= maxLevel; o.Level++ {
			if cs, ok := c.Find(o, r.name); ok {
				return cs, true
			}
		}
	}
	return suite.Case{}, false
}

// foreign makes a case of every untagged run that c can judge: training runs of
// several ranks, or of one rank where there are no others; runs that are no
// training, for a contract whose cases are none. Where only c is asked for and is
// about none of them it gets them all, and says what they lack.
func (j *judgement) foreign(c *suite.Suite, only bool) []*recordedCase {
	training, whole := kind(c)
	if training && !whole && !only {
		return nil // its clauses need runs that only its own cases make
	}
	several := slices.ContainsFunc(j.all, func(r *recorded) bool { return r.untagged(true) && r.history.Header.World > 1 })
	fits := func(r *recorded) bool {
		return r.untagged(training) && !(training && several && r.history.Header.World == 1)
	}
	about := func(r *recorded) bool {
		return fits(r) && (r.config == nil || c.Judges == nil || c.Judges(r.config.Plan))
	}
	if only && !slices.ContainsFunc(j.all, about) {
		about = fits
	}
	var out []*recordedCase
	for i, r := range j.all {
		if about(r) {
			name := fmt.Sprintf("history %d (%s %s)", i, r.history.Header.Model, r.history.Header.Plan)
			out = append(out, &recordedCase{name: strings.TrimRight(name, " "), runs: map[contract.Role]*recorded{contract.Test: r}})
		}
	}
	return out
}

func (r *recorded) untagged(training bool) bool {
	return r.contract == "" && (r.config != nil) == training
}

// kind reports whether a contract's cases are training runs, and whether a test
// run, alone or with a control, is evidence for all of its clauses. It is so of the
// contract, so no text or plan of the options has a say: one too short for any case
// must not make the contract look away.
func kind(c *suite.Suite) (training, whole bool) {
	for _, cs := range c.Cases(suite.Options{Level: 1}) {
		if cs.Runs[contract.Test].Config == nil {
			continue
		}
		training = true
		_, control := cs.Runs[contract.Control]
		whole = whole || (control || len(cs.Runs) == 1) && cs.Clauses == nil
	}
	return training, whole
}
