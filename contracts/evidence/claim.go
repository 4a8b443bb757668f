package evidence

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// A header is a claim, of as many steps, ranks, sequences and layers as it likes.
// What clauses go through is bounded by what is recorded: gaps are gone through
// only where they are not much longer than the rest.
const (
	fewSteps = 1 << 10
	perStep  = 2 // steps gone through, for each of which something is recorded
)

// StepsOf is the step before which those of a run end, from first on, that are worth
// going through: behind the last of which some rank recorded something, or, where
// much more than is recorded lies between, the first gap.
func StepsOf(h *trace.History, cfg spec.Config, first int) int {
	seen := map[int]bool{}
	last, before := first-1, first-1 // before saves looking up most of the events
	for e := range h.All {
		if e.Kind != trace.KindEnd && e.Step != before && e.Step >= first && e.Step < cfg.Steps {
			seen[e.Step], last, before = true, max(last, e.Step), e.Step
		}
	}
	if last-first < fewSteps+perStep*len(seen) {
		return last + 1
	}
	for step := first; ; step++ {
		if !seen[step] {
			return step
		}
	}
}

// A run that is judged implies at most so much evidence beside, and for each piece
// of, what is recorded. One that records no more than its loss implies less.
const (
	littleEvidence = 1 << 16
	perPiece       = 1 << 10
)

// Bounded refuses a history whose header claims so much more than is recorded that
// nothing can be said of it: going through all that lacks would take ages.
func Bounded(h *trace.History, cfg spec.Config) error {
	return within(h, cfg, littleEvidence, perPiece)
}

// Repeatable refuses a history of which too little is recorded for as much work as
// its run was.
func Repeatable(h *trace.History, cfg spec.Config) error {
	return within(h, cfg, littleEvidence>>4, perPiece>>6)
}

// within refuses a history whose header implies more than little pieces of evidence,
// and as many as per for each that is recorded.
func within(h *trace.History, cfg spec.Config, little, per float64) error {
	recorded := 0.0
	for e := range h.All {
		recorded += float64(1 + len(e.IDs) + len(e.Data))
	}
	// Every unit of every rank in every micro-batch of a step, and every sequence.
	p := cfg.Plan
	first, _ := Resumed(h)
	steps := float64(StepsOf(h, cfg, first) - first + 1)
	units := float64(p.World()) / float64(max(1, p.PP)) * float64(cfg.Model.Layers+3)
	implied := steps * (float64(units*float64(1+p.MicroBatches)) + float64(cfg.Sequences))
	if implied > little+float64(per*recorded) {
		return fmt.Errorf("%.0f pieces of evidence are recorded, far too few for what the header claims: %d ranks of %d layers, %d micro-batches of %d sequences a step",
			recorded, p.World(), cfg.Model.Layers, p.MicroBatches, cfg.Sequences)
	}
	return nil
}

// Resumed is the first step that a rank of the run goes on at, and how many optimizer
// steps it says were taken by then; 0 where none says so.
func Resumed(h *trace.History) (first, taken int) {
	found := false
	for e := range h.All {
		if e.Kind == trace.KindResume && (!found || e.Step < first) {
			first, taken, found = e.Step, int(e.Count), true
		}
	}
	return first, taken
}

// owe adds to a pass, for each step of the claim from first on that is not gone
// through, one piece of evidence that lacks, and says so once. So it does where the
// end of a rank is another step's than the last.
func (r *Run) owe(p *contract.Pass, role contract.Role) {
	if lacks := r.Config.Steps - r.Steps; lacks > 0 {
		p.Expect(lacks)
		p.Doubt("%s run: steps %d to %d of %d are not recorded", role, r.Steps, r.Config.Steps-1, r.Config.Steps)
	}
	for rank := range r.Header.World {
		for e := range r.Events(rank, trace.KindEnd) {
			if e.Step != r.Config.Steps-1 {
				p.Doubt("%s run: rank %d ended in step %d, not in the last of %d", role, rank, e.Step, r.Config.Steps)
				return
			}
		}
	}
}
