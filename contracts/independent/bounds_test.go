package independent_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// tally is the worst of what was compared.
type tally struct {
	ratio, width     float64 // observed/bound, bound/largest value
	ratioAt, widthAt string
	elements         int
}

func (y *tally) add(t testing.TB, name string, want independent.Bounded, got []float32) {
	t.Helper()
	i, ratio := want.Worst(got)
	if ratio > 1 {
		t.Errorf("%s[%d]: %v is %v of its bound %v from %v", name, i, got[max(i, 0)], ratio, want.Bound[max(i, 0)], want.Value[max(i, 0)])
	}
	if ratio > y.ratio {
		y.ratio, y.ratioAt = ratio, name
	}
	if w := want.Width(); w > y.width {
		y.width, y.widthAt = w, name
	}
	y.elements += len(got)
}

func (y *tally) String() string {
	return fmt.Sprintf("%d elements: observed/bound at most %.2g (%s), bound/largest value %.2g (%s)", y.elements, y.ratio, y.ratioAt, y.width, y.widthAt)
}

// judgeStep holds one step's loss, gradients and pinned tensors against the model.
func judgeStep(t testing.TB, r *recording, step, workers int, choose func(string) bool) (grads, pinned *tally) {
	t.Helper()
	m := newModel(t, shape(r.cfg.Model), r.captured(t, step-1, trace.Weight))
	m.Workers = workers
	if workers > 0 {
		m.Groups = r.cfg.Model.Groups.Tensor
	}
	pins := independent.Pins{}
	if r.tape != nil {
		pins = r.pins(t, step, choose)
	}
	got := evaluate(t, m, r.corpus(t).Batch(step), pins)
	grads, pinned = &tally{}, &tally{}
	grads.add(t, "loss", got.Loss, []float32{float32(r.scalar(t, step, trace.Loss))})
	run := r.captured(t, step, trace.Grad)
	if !slices.Equal(slices.Sorted(maps.Keys(run)), slices.Sorted(maps.Keys(got.Gradients))) {
		t.Errorf("gradients of %v, want %v", slices.Sorted(maps.Keys(run)), slices.Sorted(maps.Keys(got.Gradients)))
	}
	for _, name := range slices.Sorted(maps.Keys(run)) {
		grads.add(t, name, got.Gradients[name], run[name])
	}
	for _, j := range got.Judged {
		pinned.add(t, j.Name, j.Bounded, pins[j.Name])
	}
	return grads, pinned
}

// variants are both fixtures with and without what a shape may have.
func variants() map[string]func(c *train.Config) {
	odd := func(change func(m *model.Config)) func(*train.Config) {
		return func(c *train.Config) { change(&c.Model) }
	}
	return map[string]func(c *train.Config){
		"nano":        nil,
		"nano tied":   odd(func(m *model.Config) { m.Tied = true }),
		"nano biased": odd(func(m *model.Config) { m.QKVBias, m.LinearBias, m.InitBias = true, true, 0.1 }),
		"nano eps":    odd(func(m *model.Config) { m.NormEps, m.RopeTheta = 1e-3, 100 }),
		"odd":         nil,
		"odd untied":  odd(func(m *model.Config) { m.Tied = false }),
		"odd biased":  odd(func(m *model.Config) { m.LinearBias = true }),
	}
}

// Whole-model bounds and bounds from recorded boundary values hold for what
// float32 computed, and the latter say something about every tensor.
func TestBoundsHold(t *testing.T) {
	for name, change := range variants() {
		t.Run(name, func(t *testing.T) {
			r := record(t, preset(t, strings.Fields(name)[0], change))
			for _, p := range []struct {
				name   string
				choose func(string) bool
			}{{"whole", none}, {"blocks", blocks}, {"halves", halves}, {"all", everything}} {
				grads, pinned := judgeStep(t, r, 0, r.cfg.Plan.Workers(r.cfg.Model), p.choose)
				t.Logf("%-6s %v", p.name, grads)
				t.Logf("%-6s %v", p.name, pinned)
			}
		})
	}
}
