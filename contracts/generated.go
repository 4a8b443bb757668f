package contracts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
)

// GeneratedID is the ID under which a self-test reports generated faults. It is no
// contract of the list: its clauses say that some exact clause of the others sees
// each fault of a family.
const GeneratedID = "C-FAULT-001"

// generatedDeadline bounds how long a rank of a generated run waits for a peer: its
// steps take milliseconds.
const generatedDeadline = 3 * time.Second

// generated is the group of generated faults without its attempts.
func generated() *group {
	c := &contract.Contract{ID: GeneratedID, Title: "generated faults are seen"}
	for i, f := range fault.Families() {
		c.Clauses = append(c.Clauses, &contract.Clause{ID: fmt.Sprintf("%s.%d", GeneratedID, i+1), Says: f.Says, Class: contract.Exact})
	}
	return &group{Contract: c, generated: true}
}

// clauseOfFamily is the clause of a family.
func clauseOfFamily(f fault.Family) string {
	for i, x := range fault.Families() {
		if x.Family == f {
			return fmt.Sprintf("%s.%d", GeneratedID, i+1)
		}
	}
	return ""
}

// isGenerated reports whether an ID has the form of a generated fault's.
func isGenerated(id string) bool {
	for _, f := range fault.Families() {
		if strings.HasPrefix(id, string(f.Family)+":") {
			return true
		}
	}
	return false
}

// Generated reports whether an element of Options.Faults asks for generated faults.
func Generated(asked string) bool { return asked == FaultsAll || isGenerated(asked) }

// FindGenerated is the generated fault of an ID; the error names similar ones.
// Parts make the backends of the runs that tell what there is to break.
func FindGenerated(ctx context.Context, parts launch.Parts, id string) (*fault.Generated, error) {
	all, err := fault.Generate(ctx, parts)
	if err != nil {
		return nil, err
	}
	var known []string
	for i, g := range all {
		if g.ID == id {
			return &all[i], nil
		}
		known = append(known, g.ID)
	}
	return nil, unknownFault(id, known)
}

// generate plans the generated faults that were asked for.
func (s *selfTest) generate(ctx context.Context, asked *asked) (*group, error) {
	g := generated()
	if !asked.generates() {
		return g, nil
	}
	all, err := fault.Generate(ctx, s.engine.Parts)
	if err != nil {
		return nil, err
	}
	s.engine.Patience = generatedDeadline
	var known []string
	clean := map[string]*suite.Trial{}
	for _, f := range all {
		known = append(known, f.ID)
		if !asked.generated && !asked.named(f.ID) {
			continue
		}
		on := suite.Name(f.Config)
		if clean[on] == nil {
			own := suite.Options{Text: data.Default()}
			clean[on] = s.engine.PlanOther(GeneratedID, suite.Case{Name: on, Runs: map[contract.Role]suite.Run{
				contract.Test: suite.Train(f.Config, own), contract.Control: suite.Train(compare.Single(f.Config), own)}})
		}
		g.attempts = append(g.attempts, s.generatedAttempt(clean[on], f))
	}
	for _, id := range asked.ids {
		if isGenerated(id) && !slices.Contains(known, id) {
			return nil, &OptionError{unknownFault(id, known)}
		}
	}
	return g, nil
}

func (s *selfTest) generatedAttempt(clean *suite.Trial, f fault.Generated) *attempt {
	m := suite.Mutant{ID: f.ID, Clause: clauseOfFamily(f.Family), On: clean.Name, Says: f.Says, Break: fault.Into(contract.Test, f.Fault)}
	return &attempt{mutant: m, clean: clean, broken: clean.Break(m)}
}
