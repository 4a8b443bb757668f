package compare

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// agree reports whether the copies of each slice are equal and the slices add up
// to the whole.
func agree(groups [][]evidence.Copy, want trace.Event) bool {
	for _, g := range groups {
		for _, x := range g {
			if !x.Complete() || !evidence.Same(x.Event, g[0].Event) {
				return false
			}
		}
	}
	return evidence.Same(evidence.Whole(groups), want)
}

// difference is a tensor that is not the control's.
type difference struct {
	*Comparison
	step        int
	name, title string
	found       int
}

// locate names the ranks that deviate, where that can be known. Without all
// copies the sum of the slices shows nothing.
func (d *difference) locate(groups [][]evidence.Copy, want trace.Event, all bool) {
	for _, g := range groups {
		for _, x := range g {
			d.one(x, g[0], want)
		}
	}
	if all && d.found == 0 {
		d.report(-1, evidence.Whole(groups), want, false, "of all ranks together differs from the control's")
	}
}

// one judges a copy by the control's slice, or, where the control has no
// elements, by the first copy of the same slice.
func (d *difference) one(x, first evidence.Copy, want trace.Event) {
	ref, ok := evidence.SliceOf(x.Holding, want)
	switch {
	case x.Param.Len() == x.Param.Rows*x.Param.Cols:
		ref, ok = want, true
	case !ok:
		ref = first.Event
	}
	switch {
	case !x.Complete():
		d.report(x.Rank, x.Event, ref, true, fmt.Sprintf("on rank %d covers %d elements of a slice of %d", x.Rank, x.Event.Count, x.Param.Len()))
	case evidence.Same(x.Event, ref):
	case ok:
		d.report(x.Rank, x.Event, ref, false, fmt.Sprintf("on rank %d is not the control's", x.Rank))
	default:
		d.report(x.Rank, x.Event, ref, true, fmt.Sprintf("on rank %d differs from the copy of the same slice on rank %d", x.Rank, first.Rank))
	}
}

// report adds a finding about a copy. Copies of one slice must be equal whatever the
// control has: where that is not what they are held against, rule says so.
func (d *difference) report(rank int, got, want trace.Event, rule bool, message string) {
	d.found++
	at := d.p.At(rank, d.step).Of(d.name)
	if !rule {
		at = at.Against(contract.Control)
	}
	d.Test.Report(at, got, want, "%s %s", d.title, message)
}
