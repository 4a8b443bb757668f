package contracts

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// recorded is a history from a file, with what its header says.
type recorded struct {
	history  *trace.History
	config   *spec.Config // nil where the run was no training
	contract string       // from the header's case; empty where it has none
	name     string
	role     contract.Role
	flaw     string // why nothing can be made of it; empty where something can
	used     bool   // as a test run, in another role, or as a control that was compared
	misnamed bool   // says to be of a case that its contract does not have, or not of that run
}

// read classifies a history. It refuses one that says to be a training run and has
// no configuration of any.
func read(h *trace.History) (*recorded, error) {
	r := &recorded{history: h}
	switch {
	case h.Header.Spec.Lockstep != nil:
		c, err := spec.Of(h.Header.Spec)
		if err != nil {
			return nil, err
		}
		r.config = &c
		for _, f := range []struct{ name, says, is string }{{"plan", h.Header.Plan, c.Plan.String()}, {"model", h.Header.Model, c.Model.Name}} {
			if f.says != "" && f.says != f.is {
				r.flaw = fmt.Sprintf("its header says %s %q, and %q in the specification", f.name, f.says, f.is)
			}
		}
	case h.Header.Spec.Observed != nil:
		r.flaw = "it is of another trainer, whose runs nothing here judges from files"
	}
	if r.contract, r.name, r.role = suite.Tag(h.Header.Case); r.contract == "" && h.Header.Case != "" {
		r.contract = h.Header.Case // names no case of a contract
	}
	return r, nil
}

// dir is where the run was found.
func (r *recorded) dir() string { return r.history.Dir }

// untagged reports whether a run, training or not, says of no case that it is its.
func (r *recorded) untagged(training bool) bool {
	return r.flaw == "" && r.contract == "" && (r.config != nil) == training
}

// recordedCase is one case made of recorded runs.
type recordedCase struct {
	name    string
	in      string // what tells it from other cases of the name
	runs    map[contract.Role]*recorded
	clauses []string
	doubts  map[contract.Role][]string // of what the runs prove
	serves  bool                       // the test run is also what another run's control must be
	alone   bool                       // the test run is judged beside itself
}

// beside is the case with another run in a role, and why that may prove little.
func (rc *recordedCase) beside(role contract.Role, r *recorded, doubts ...string) *recordedCase {
	out := *rc
	out.runs = maps.Clone(rc.runs)
	out.runs[role] = r
	out.doubts = map[contract.Role][]string{role: doubts}
	for other, x := range rc.doubts {
		if other != role {
			out.doubts[other] = x
		}
	}
	return &out
}

// saved puts the histories that verify saved for c together again: those of one
// case lie side by side, and every combination is judged where a role is there
// twice. It says which runs of c belong to none.
func (j *judgement) saved(c *suite.Suite) (out []*recordedCase, doubts []string) {
	type place struct{ name, parent string }
	all := map[place]map[contract.Role][]*recorded{}
	var order, alone []place
	for _, r := range j.all {
		if r.contract != c.ID || r.flaw != "" || r.misnamed {
			continue
		}
		at := place{r.name, filepath.Dir(r.dir())}
		if all[at] == nil {
			all[at], order = map[contract.Role][]*recorded{}, append(order, at)
		}
		all[at][r.role] = append(all[at][r.role], r)
	}
	order, alone = split(order, func(at place) bool { return all[at][contract.Test] != nil })
	// A run without its test run goes to one of the name that lacks it.
	for _, at := range alone {
		for _, to := range order {
			for role, runs := range all[at] {
				if to.name == at.name && all[to][role] == nil {
					all[to][role] = runs
				}
			}
		}
	}
	for _, at := range order {
		rc := &recordedCase{name: at.name}
		if slices.ContainsFunc(order, func(o place) bool { return o != at && o.name == at.name }) {
			rc.in = at.parent
		}
		out = append(out, j.combined(c, rc, all[at])...)
	}
	for _, r := range j.all {
		if r.contract == c.ID && r.flaw == "" && !r.misnamed && !r.used {
			doubts = append(doubts, fmt.Sprintf("%s: the %s run of a case %q to which it does not belong here: it is left out", r.dir(), r.role, r.name))
		}
	}
	return out, doubts
}

// split divides a list by what holds of its elements.
func split[T any](all []T, holds func(T) bool) (yes, no []T) {
	for _, x := range all {
		if holds(x) {
			yes = append(yes, x)
		} else {
			no = append(no, x)
		}
	}
	return yes, no
}

// combined makes the cases of runs by role: each run of a role is beside each test
// run once. Runs in roles that no clause of the case reads are not used.
func (j *judgement) combined(c *suite.Suite, rc *recordedCase, runs map[contract.Role][]*recorded) []*recordedCase {
	roles := readBy(c)
	if cs, ok := j.caseOf(c, runs[contract.Test][0]); ok {
		rc.clauses, roles = cs.Clauses, cs.Roles()
	}
	maps.DeleteFunc(runs, func(role contract.Role, _ []*recorded) bool { return !slices.Contains(roles, role) })
	most := 1
	for role, all := range runs {
		for _, r := range all {
			r.used = true
		}
		if role != contract.Test {
			most = max(most, len(all))
		}
	}
	var out []*recordedCase
	for _, t := range runs[contract.Test] {
		for i := range most {
			x := &recordedCase{name: rc.name, in: rc.in, clauses: rc.clauses, runs: map[contract.Role]*recorded{}}
			for role, all := range runs {
				x.runs[role] = all[min(i, len(all)-1)]
			}
			x.runs[contract.Test] = t
			if most*len(runs[contract.Test]) > 1 {
				x.in = fmt.Sprintf("%s, %d", t.dir(), i)
			}
			out = append(out, x)
		}
	}
	return out
}

// readBy lists the roles of all cases of a contract at level 1.
func readBy(c *suite.Suite) []contract.Role {
	out := []contract.Role{contract.Test, contract.Control}
	for _, cs := range c.Cases(suite.Options{Level: 1}) {
		out = append(out, cs.Roles()...)
	}
	return out
}

// foreign makes a case of every untagged run that c can judge: training runs; runs
// that are no training, for a contract whose cases are none. Where only c is asked
// for, and is about none of them, it gets them all, and says what they lack.
func (j *judgement) foreign(c *suite.Suite, only bool) []*recordedCase {
	training, whole := kind(c)
	if training && !whole && !only {
		return j.alone(c) // its other clauses need runs that only its own cases make
	}
	fits := func(r *recorded) bool { return r.untagged(training) || r.stray(j, training) }
	about := func(r *recorded) bool {
		return fits(r) && (r.config == nil || c.Judges == nil || c.Judges(r.config.Plan))
	}
	if only && !slices.ContainsFunc(j.all, about) {
		about = fits
	}
	var out []*recordedCase
	for _, r := range j.all {
		if lacks := lacking(c, r); about(r) && lacks != "" && !only {
			j.note("%s: %s: %s", c.ID, r.dir(), lacks)
		} else if about(r) {
			out = append(out, &recordedCase{name: named(r), runs: map[contract.Role]*recorded{contract.Test: r}, serves: j.serves(r)})
		}
	}
	return out
}

// lacking says what c would need of a training run that this one did not record.
func lacking(c *suite.Suite, r *recorded) string {
	if c.Lacks == nil || r.config == nil {
		return ""
	}
	return c.Lacks(r.history)
}

// named is what an untagged run is called: by where it was found.
func named(r *recorded) string {
	s := fmt.Sprintf("%s (%s %s", r.dir(), r.history.Header.Model, r.history.Header.Plan)
	return strings.TrimRight(s, " ") + ")"
}

// serves reports whether a run of one rank is of the task of another run, whose
// control it is.
func (j *judgement) serves(r *recorded) bool {
	return r.config != nil && r.history.Header.World == 1 && slices.ContainsFunc(j.all, func(t *recorded) bool {
		return t.untagged(true) && t.history.Header.World > 1 && problemSpec(*t.config) == problemSpec(*r.config)
	})
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
