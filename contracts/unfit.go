package contracts

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// unfit says why a contract's cases cannot be run here, or why the plans that it would
// run by itself do not fit the configuration that was asked for; empty where they do, or
// where plans or no configuration were asked for.
func (o *Options) unfit(c *suite.Suite) string {
	all := o.Cases(c)
	for _, one := range all {
		if one.Lacks != "" {
			return fmt.Sprintf("its case %s: %s", one.Name, one.Lacks)
		}
	}
	if o.Config == "" || len(o.Plans) > 0 {
		return ""
	}
	if len(all) == 0 {
		on, err := o.Base(o.Config)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("none of its plans promises the bits of one worker on %s, which has %d groups of data and %d of tensors: name a plan", o.Config, on.Model.Groups.Data, on.Model.Groups.Tensor)
	}
	for _, one := range all {
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

// less says what of a contract's cases is not run here.
func (o *Options) less(c *suite.Suite) (out []string) {
	for _, one := range o.Cases(c) {
		if one.Less != "" {
			out = append(out, fmt.Sprintf("%s: its case %s: %s", c.ID, one.Name, one.Less))
		}
	}
	return out
}
