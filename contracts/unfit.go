package contracts

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// unfit says why the plans that a contract would run by itself do not fit the
// configuration that was asked for; empty where they do, or where plans or no
// configuration were asked for.
func (o *Options) unfit(c *suite.Suite) string {
	if o.Config == "" || len(o.Plans) > 0 {
		return ""
	}
	for _, one := range o.Cases(c) {
		for _, role := range one.Roles() {
			if cfg := one.Runs[role].Config; cfg != nil {
				run := *cfg
				if run.Model.Validate() != nil {
					continue
				}
				if err := run.Plan.Validate(run.Model, run.Sequences); err != nil {
					return fmt.Sprintf("its case %s does not fit %s: %v", one.Name, o.Config, err)
				}
			}
		}
	}
	return ""
}
