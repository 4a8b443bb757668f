package evidence

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Moment is when in its step an event arises, and its place in the order of the
// computation: a forward pass goes through the units from the first to the last, a
// backward pass the other way.
func (r *Run) Moment(e trace.Event) (phase contract.Phase, order int) {
	if e.Step < 0 {
		return contract.Initial, 0
	}
	unit := r.unit(e)
	switch e.Kind {
	case trace.KindComm:
		return moment(e), 0
	case trace.KindGather: // before the pass that needs it
		return contract.Forward, unit - 1
	case trace.KindData, trace.KindTokens:
		return contract.Data, 0
	case trace.KindChanged, trace.KindUnmoved, trace.KindSkip:
		return contract.Update, 0
	}
	switch e.What {
	case trace.Forward:
		return contract.Forward, unit
	case trace.Loss: // as all ranks have it
		return contract.Reduction, last
	case trace.Backward, trace.WorkerGrad:
		return contract.Backward, -unit
	case trace.Grad:
		return contract.Reduction, 0
	case trace.Norm, trace.Coef:
		return contract.Norm, 0
	case trace.Weight:
		if z := r.Config.Plan.Zero; z == 1 || z == 2 { // owners update, and then publish
			return contract.Publication, 0
		}
	}
	return contract.Update, 0
}

// last comes after all else of a phase.
const last = 1 << 20

// unit is the place of an event's unit, or its tensor's, in the forward pass, times
// two.
func (r *Run) unit(e trace.Event) int {
	name := e.Unit
	if name == "" {
		i := slices.IndexFunc(r.Sources, func(t Tensor) bool { return t.Name == e.Tensor })
		if i < 0 {
			return 0
		}
		name = r.Sources[i].Unit
	}
	return 2 * slices.Index(r.units, name)
}

// moment is when in its step an operation of a communicator is made.
func moment(e trace.Event) contract.Phase {
	switch {
	case e.Unit == names.Tokens:
		return contract.Data
	case e.Unit == trace.Norm:
		return contract.Norm
	case e.Unit == names.TiedWeight || e.Op == names.OpAllGather:
		return contract.Publication
	case e.Unit == names.TiedGradient || e.Group == names.DP:
		return contract.Reduction
	case e.Group == names.KV:
		return contract.Backward
	}
	return contract.Forward
}
