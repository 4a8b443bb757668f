package evidence_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// taking is a history of one rank with an event of each of the steps.
func taking(steps ...int) *trace.History {
	h := &trace.History{Header: trace.Header{World: 1}, Ranks: map[int][]trace.Event{0: nil}}
	for _, s := range steps {
		h.Ranks[0] = append(h.Ranks[0], trace.Event{Kind: trace.KindScalar, Step: s})
	}
	return h
}

// upTo are the steps from lo to before hi.
func upTo(lo, hi int) (out []int) {
	for s := lo; s < hi; s++ {
		out = append(out, s)
	}
	return out
}

// What is gone through ends with the last step of which something is recorded,
// gaps and all, but not where the gaps are most of it.
func TestStepsOf(t *testing.T) {
	const claimed = 1_000_000_000
	for _, x := range []struct {
		name  string
		steps []int
		first int
		want  int
	}{
		{"nothing", nil, 0, 0},
		{"before the first alone", []int{-1}, 0, 0},
		{"some", []int{-1, 0, 1, 2}, 0, 3},
		{"a gap", []int{0, 1, 9}, 0, 10},
		{"the first lacks", []int{9}, 0, 10},
		{"a long gap", []int{0, 1, claimed - 1}, 0, 2},
		{"beyond what is claimed", []int{0, 1, claimed, claimed + 1}, 0, 2},
		{"many", upTo(0, 5000), 0, 5000},
		{"many, with gaps as long", append(upTo(0, 5000), upTo(9000, 10000)...), 0, 10000},
		{"it goes on late", upTo(claimed-3, claimed), claimed - 3, claimed},
		{"it goes on late, and is read from the beginning", upTo(claimed-3, claimed), 0, 0},
		{"nothing after it goes on", []int{3}, 7, 7},
	} {
		if got := evidence.StepsOf(taking(x.steps...), spec.Config{Steps: claimed}, x.first); got != x.want {
			t.Errorf("%s: %d, want %d", x.name, got, x.want)
		}
	}
	ends := taking(0)
	ends.Ranks[0] = append(ends.Ranks[0], trace.Event{Kind: trace.KindEnd, Step: 2})
	if got := evidence.StepsOf(ends, spec.Config{Steps: 3}, 0); got != 1 {
		t.Errorf("an end is evidence of step 2: %d steps", got)
	}
}

// A claim is refused where it is out of all proportion to what is recorded, in
// whatever it claims much.
func TestBounded(t *testing.T) {
	base := spread(t, "dp=1").Config
	for _, x := range []struct {
		name       string
		change     func(*spec.Config)
		steps      int // recorded
		bounded    bool
		repeatable bool
	}{
		{"a small run without evidence", func(*spec.Config) {}, 0, true, true},
		{"ranks", func(c *spec.Config) { c.Plan.DP = 1 << 16 }, 3, false, false},
		{"more ranks than are worth a control", func(c *spec.Config) { c.Plan.DP = 512 }, 3, true, false},
		{"sequences", func(c *spec.Config) { c.Sequences = 1 << 20 }, 3, false, false},
		{"micro-batches", func(c *spec.Config) { c.Plan.MicroBatches = 1 << 20 }, 3, false, false},
		{"layers", func(c *spec.Config) { c.Model.Layers = 1 << 20 }, 3, false, false},
		{"as many steps as are recorded", func(c *spec.Config) { c.Steps = 100_000 }, 100_000, true, false},
		{"steps are no matter here", func(c *spec.Config) { c.Steps = math.MaxInt }, 3, true, true},
	} {
		cfg := base
		x.change(&cfg)
		h := taking(upTo(0, x.steps)...)
		if err := evidence.Bounded(h, cfg); (err == nil) != x.bounded || err != nil && !strings.Contains(err.Error(), "pieces of evidence") {
			t.Errorf("%s: bounded: %v", x.name, err)
		}
		if err := evidence.Repeatable(h, cfg); (err == nil) != x.repeatable {
			t.Errorf("%s: repeatable: %v", x.name, err)
		}
	}
}

// What a run that goes on from a checkpoint left behind is not owed; of one that does
// not say so it is.
func TestReadResumed(t *testing.T) {
	h := whole(t)
	cfg, err := spec.Of(h.Header.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Steps = 5000
	h.Header.Spec = cfg.Recorded()
	h.Ranks[0] = []trace.Event{{Kind: trace.KindResume, Step: 4998}, {Kind: trace.KindSkip, Step: 4998}, {Kind: trace.KindSkip, Step: 4999}, {Kind: trace.KindEnd, Step: 4999}}
	histories := map[contract.Role]*trace.History{contract.Test: h}
	var steps []int
	found := func(p *contract.Pass, r *evidence.Run) { steps = []int{r.First, r.Steps}; p.Found(true) }
	if res := judge(evidence.With(found), histories); res.Verdict() != contract.Held || !slices.Equal(steps, []int{4998, 5000}) {
		t.Errorf("as one that goes on: %s, %v, steps %v", res.Verdict(), res.Doubts, steps)
	}
	h.Ranks[0] = h.Ranks[0][1:]
	res := judge(evidence.With(found), histories)
	if res.Verdict() != contract.Inconclusive || !slices.Equal(steps, []int{0, 0}) || res.Expected != 5001 || !slices.Contains(res.Doubts, "test run: steps 0 to 4999 of 5000 are not recorded") {
		t.Errorf("as one from the beginning: %s of %d, %v, steps %v", res.Verdict(), res.Expected, res.Doubts, steps)
	}
}

// Slices of ranges are found by rows and columns as by elements.
func TestSliceOfRanges(t *testing.T) {
	for _, p := range []string{"dp=1", "tp=2", "tp=4,vocab=parallel"} {
		r := spread(t, p)
		for name, held := range r.Held() {
			for _, h := range held {
				n := int64(h.Param.Rows * h.Param.Cols)
				whole := [][2]int64{{0, 1}, {n / 7, n / 3}, {n / 2, n/2 + 3}, {n - 1, n + 5}}
				in := func(at int64) bool {
					return slices.ContainsFunc(whole, func(x [2]int64) bool { return at >= x[0] && at < x[1] })
				}
				var want [][2]int64
				for i := range int64(h.Param.Len()) {
					if in(h.Index(i)) {
						want = append(want, [2]int64{i, i + 1})
					}
				}
				if got := h.Slice(whole); !slices.Equal(got, evidence.Union(want)) {
					t.Errorf("%s: %s on rank %d: %v, want %v", p, name, h.Rank, got, evidence.Union(want))
				}
			}
		}
	}
}

// TestEventsAfterTheLastStep: what is recorded of a step that the header does not have
// is no evidence of the run.
func TestEventsAfterTheLastStep(t *testing.T) {
	r := spread(t, "dp=1")
	for _, x := range []struct {
		e    trace.Event
		fits bool
	}{
		{trace.Event{Kind: trace.KindMemory, Step: r.Config.Steps - 1}, true},
		{trace.Event{Kind: trace.KindMemory, Step: r.Config.Steps}, false},
		{trace.Event{Kind: trace.KindTokens, Step: r.Config.Steps + 7}, false},
		{trace.Event{Kind: trace.KindResume, Step: r.Config.Steps}, true},
	} {
		r.Ranks[0] = []trace.Event{x.e}
		if why := r.Misfit(); (why == "") != x.fits {
			t.Errorf("%s in step %d of %d: %q", x.e.Kind, x.e.Step, r.Config.Steps, why)
		}
	}
}
