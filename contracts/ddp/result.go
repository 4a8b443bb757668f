package ddp

import (
	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// single is clause 4: the result is that of the single worker on the same
// global batch; where the plan does not promise its bits, every step is judged
// from the plan's own weights.
func single(p *contract.Pass, c *compare.Comparison) {
	if !c.Test.Exact() {
		bounded.Judge(p, c.Test, nil)
		c.Scalars(nil, trace.LR)
		return
	}
	// Workers' own gradients come first: a difference there is of the computation,
	// not of the communication.
	// What the update is made from comes before what it makes.
	c.Gradients(nil)
	c.Scalars(c.LastStage, trace.Loss)
	c.Scalars(nil, trace.Norm, trace.Coef, trace.LR)
	for step := range c.Test.Config.Steps {
		c.State(step, nil)
	}
}
