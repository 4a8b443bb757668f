package contracts

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// untaken says why no case of a contract takes plans together: what keeps one of them
// from running on the configuration, or from being compared there; where nothing does,
// the contract's own configurations take none of the plans together.
func (o *Options) untaken(c *suite.Suite, plans []string) string {
	s := fmt.Sprintf("%s: no case takes the plans %s", c.ID, strings.Join(plans, " and "))
	on, err := o.Base(cmp.Or(o.Config, widest))
	if err != nil {
		return fmt.Sprintf("%s: %v", s, err)
	}
	for _, text := range plans {
		p, err := plan.Parse(text)
		given := p // Validate fills defaults
		if err == nil {
			err = p.Validate(on.Model, on.Sequences)
		}
		switch {
		case err != nil && o.Config != "":
			return fmt.Sprintf("%s: %v", s, err)
		case err == nil && !p.Exact(on.Model):
			return fmt.Sprintf("%s: %s does not promise the bits of one worker on %s, which its cases compare with: dp must divide the %d groups of data, and comm be tree", s, given, on.Model.Name, on.Model.Groups.Data)
		}
	}
	if o.Config != "" {
		return fmt.Sprintf("%s on %s", s, o.Config)
	}
	return s + " together; name a configuration that they fit, if there is one"
}
