package suite

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Trial is a case with the runs that make its histories; Engine.Run makes them.
type Trial struct {
	Case
	Contract string // its ID

	engine   *Engine
	unlisted bool
	jobs     map[contract.Role]*job
}

// Break is the trial of the case as a mutant breaks it. The test run is always its
// own; the others are the unbroken case's unless the mutant touched them.
func (t *Trial) Break(m Mutant) *Trial {
	broken := &Trial{Case: t.Case.clone(), Contract: t.Contract, engine: t.engine, unlisted: t.unlisted, jobs: map[contract.Role]*job{}}
	m.Break(&broken.Case)
	for _, role := range broken.Roles() {
		r := broken.Runs[role]
		if role != contract.Test && t.jobs[role] != nil && untouched(t.Runs[role], r) {
			broken.jobs[role] = t.jobs[role]
			continue
		}
		r.Key = ""
		j := t.engine.job(RunName{t.Contract, t.Name, role, m.ID}, t.unlisted, r)
		j.patience = t.engine.Patience
		broken.jobs[role] = j
	}
	return broken
}

// untouched reports whether two runs are surely the same: functions cannot be
// compared, so a run that has one counts as touched.
func untouched(a, b Run) bool {
	return a.Do == nil && b.Do == nil && a.Parts == nil && b.Parts == nil && reflect.DeepEqual(a.Config, b.Config)
}

// clone copies a case so deeply that breaking the copy leaves the original.
func (c Case) clone() Case {
	runs := map[contract.Role]Run{}
	for role, r := range c.Runs {
		if r.Config != nil {
			cfg := *r.Config
			cfg.Blank = slices.Clone(cfg.Blank)
			r.Config = &cfg
		}
		runs[role] = r
	}
	c.Runs = runs
	c.Clauses = slices.Clone(c.Clauses)
	return c
}

// History is what the run of a role recorded, after an error up to it; nil where
// that is nothing.
func (t *Trial) History(role contract.Role) *trace.History {
	if j := t.jobs[role]; j != nil {
		return j.history
	}
	return nil
}

// unrefused leaves out of a run that ended early what it says was refused: that may be
// because the run ended.
func unrefused(h *trace.History) {
	if h == nil {
		return
	}
	for r, events := range h.Ranks {
		h.Ranks[r] = slices.DeleteFunc(slices.Clone(events), func(e trace.Event) bool { return e.Kind == trace.KindRefusal && e.Text != "" })
	}
}

// Err is what ended the run of a role early.
func (t *Trial) Err(role contract.Role) error { return t.jobs[role].err }

// Evidence is what the case's runs recorded.
func (t *Trial) Evidence(oracle contract.Oracle) contract.Evidence {
	e := contract.Evidence{Case: t.Name, Histories: map[contract.Role]*trace.History{}, Clauses: t.Clauses, Oracle: oracle, Texts: t.engine.texts, Fresh: true}
	for role := range t.jobs {
		if h := t.History(role); h != nil {
			e.Histories[role] = h
		}
	}
	return e
}

// Failures says which runs of the case ended in an error.
func (t *Trial) Failures() []string {
	var out []string
	for _, role := range t.Roles() {
		if err := t.Err(role); err != nil && !t.jobs[role].cut {
			line, _, _ := strings.Cut(err.Error(), "\n")
			out = append(out, fmt.Sprintf("case %s: the %s run ended early: %s", t.Name, role, line))
		}
	}
	return out
}

// Unfinished says which runs of the case were not begun, or were ended, when the
// context of Engine.Run ended; nil where all were made. What such a run recorded is
// no evidence of anything: whatever it lacks, it might have recorded.
func (t *Trial) Unfinished() []string {
	var out []string
	for _, role := range t.Roles() {
		switch j := t.jobs[role]; {
		case !j.done:
			out = append(out, fmt.Sprintf("case %s: the %s run was not begun", t.Name, role))
		case j.cut:
			out = append(out, fmt.Sprintf("case %s: the %s run was interrupted", t.Name, role))
		}
	}
	return out
}

// Errors joins what ended runs of trials early, each run once, but for the end of
// the context.
func Errors(trials ...*Trial) error {
	var errs []error
	for _, j := range distinct(trials) {
		if j.err != nil && !j.cut {
			errs = append(errs, fmt.Errorf("%s: %w", j.name, j.err))
		}
	}
	return errors.Join(errs...)
}

// distinct lists the jobs of trials, each once.
func distinct(trials []*Trial) []*job {
	var out []*job
	seen := map[*job]bool{}
	for _, t := range trials {
		for _, role := range t.Roles() {
			if j := t.jobs[role]; !seen[j] {
				seen[j] = true
				out = append(out, j)
			}
		}
	}
	return out
}

// tagSeparator parts contract, case and role in the case of a saved header.
const tagSeparator = "/"

// Tag takes apart what Save writes as the case of a history's header; the
// contract is empty where it is none.
func Tag(headerCase string) (contractID, name string, role contract.Role) {
	contractID, rest, _ := strings.Cut(headerCase, tagSeparator)
	if i := strings.LastIndex(rest, tagSeparator); i >= 0 {
		return contractID, rest[:i], contract.Role(rest[i+1:])
	}
	return "", "", ""
}

// Save writes the case's histories as <contract>_<case>/<role>/<rank>.ndjson
// below dir, with headers that say so.
func (t *Trial) Save(dir string) error {
	file := strings.NewReplacer("/", "_", `\`, "_", ":", "_", " ", "_").Replace(t.Contract + "_" + t.Name)
	for _, role := range t.Roles() {
		h := t.History(role)
		if h == nil {
			continue
		}
		tagged := *h
		tagged.Header.Case = strings.Join([]string{t.Contract, t.Name, string(role)}, tagSeparator)
		if err := tagged.Save(filepath.Join(dir, file, string(role))); err != nil {
			return err
		}
	}
	return nil
}
