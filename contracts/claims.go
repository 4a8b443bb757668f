package contracts

import (
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// What a saved run says that it is of, and the case that it is of.

// claims finds out whether a test run may be of the case that it says it is of: whether
// there is one, of its model and plan. By another name it would hide from all other
// contracts.
func (j *judgement) claims(r *recorded) {
	i := slices.IndexFunc(j.suites(), func(c *suite.Suite) bool { return c.ID == r.contract })
	if r.flaw != "" || r.role != contract.Test || i < 0 {
		return
	}
	cs, ok := j.caseOf(j.suites()[i], r)
	as := cs.Runs[contract.Test].Config
	r.misnamed = !ok || (as == nil) != (r.config == nil) || as != nil && !sameShape(*as, *r.config)
}

// sameShape reports whether two configurations have one model and one plan.
func sameShape(a, b spec.Config) bool {
	if a.Validate() != nil || b.Validate() != nil {
		return false
	}
	return a.Model.Name == b.Model.Name && a.Plan.String() == b.Plan.String()
}

// suites are the contracts that a run may be of.
func (j *judgement) suites() []*suite.Suite { return append(slices.Clone(j.asked), All()...) }

// stray reports whether a run says to be of a contract, or a case, that nobody knows: it is
// named as left out, and judged as any other run besides.
func (r *recorded) stray(j *judgement, training bool) bool {
	return r.flaw == "" && r.contract != "" && (r.misnamed || !j.known(r.contract)) && (r.config != nil) == training
}

// mostWords is more than the name of any case has.
const mostWords = 16

// caseOf finds the case of c that a recorded run is of, at any level: one of the
// contract's own, or one on the configuration and plan of the run.
func (j *judgement) caseOf(c *suite.Suite, r *recorded) (suite.Case, bool) {
	if whole, err := Find(c.ID); err == nil && c.Part {
		c = whole // a case that is no evidence for its clauses is known all the same
	}
	asked := []suite.Options{j.o.Options}
	if r.config != nil {
		own := j.o.Options
		own.Seed, own.Steps = r.config.Seed, r.config.Steps
		if text, err := j.o.text(wholeText(r.config.Text)); err == nil {
			own.Text = text
		}
		named := own
		named.Config = r.config.Model.Name
		if _, err := spec.Preset(named.Config); err != nil {
			mine := *r.config
			mine.Plan = plan.Plan{}
			named.Own = &mine
		}
		short, full := named, named
		short.Plans, full.Plans = []string{given(*r.config).String()}, []string{r.config.Plan.String()}
		asked = []suite.Options{own, j.o.Options, named, short, full}
		words := strings.Fields(r.name)
		for _, word := range words[:min(len(words), mostWords)] {
			if _, err := plan.Parse(word); err == nil { // it may have been asked for
				on, one := own, named
				on.Plans, one.Plans = []string{word}, []string{word}
				asked = append(asked, on, one)
			}
		}
		// A run that goes on from a late step takes few of the steps that it is configured for.
		first, last := span(r.history)
		for _, o := range slices.Clone(asked) {
			few := o
			few.Steps, o.Steps = max(0, min(last-first+1, r.config.Steps)), 0
			asked = append(asked, few, o)
		}
	}
	var out suite.Case
	found := false
	for _, o := range asked {
		for o.Level = 1; o.Level <= maxLevel; o.Level++ {
			cs, ok := c.Find(o, r.name)
			if ok && (r.config == nil || recordedAs(cs.Runs[contract.Test], r)) {
				return cs, true
			}
			if ok && !found {
				out, found = cs, true
			}
		}
	}
	return out, found
}

// wholeText is the name of the text of which a name is the beginning.
func wholeText(name string) string {
	if of, _, ok := data.Beginning(name); ok {
		return of
	}
	return name
}

// recordedAs reports whether a case's run is what a recorded one was.
func recordedAs(r suite.Run, as *recorded) bool {
	if r.Config == nil || as.config == nil {
		return r.Config == nil && as.config == nil
	}
	a, b := *r.Config, *as.config
	if a.Validate() != nil || b.Validate() != nil {
		return false
	}
	a.Backend, b.Backend, a.TextHash, b.TextHash = "", "", "", ""
	return runSpec(a) == runSpec(b)
}
