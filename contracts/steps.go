package contracts

import (
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// unheeded says which of a contract's cases do not take the number of steps that
// was asked for: those that need more, that have a recorded number, or do not train.
func (o *Options) unheeded(c *suite.Suite, trials []*suite.Trial) []string {
	if o.Steps == 0 {
		return nil
	}
	var others []string
	for _, t := range trials {
		run := t.Runs[contract.Test]
		switch cfg := run.Config; {
		case cfg == nil:
			others = append(others, fmt.Sprintf("%q takes none of its own", t.Name))
		case cfg.Steps-run.First != o.Steps:
			others = append(others, fmt.Sprintf("%q takes %d", t.Name, cfg.Steps-run.First))
		}
	}
	switch {
	case len(others) == 0:
		return nil
	case len(others) == len(trials):
		return []string{fmt.Sprintf("%s: steps=%d changes nothing: %s", c.ID, o.Steps, strings.Join(others, ", "))}
	}
	return []string{fmt.Sprintf("%s: steps=%d does not change all cases: %s", c.ID, o.Steps, strings.Join(others, ", "))}
}
