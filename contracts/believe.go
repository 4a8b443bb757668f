package contracts

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
)

// believed says why a recorded control proves nothing by itself: a machine whose
// runs are all wrong alike recorded it too. There is nothing to say where golden
// has its bits.
func believed(r *recorded) []string {
	known, err := goldens(r.history, *r.config)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s: %v", r.dir(), err)}
	case !known:
		return []string{fmt.Sprintf("%s: nothing confirms this control: golden has no run of its task and length, and none could be made here", r.dir())}
	}
	return nil
}

// goldens holds a run against golden: known is whether there is one of its task
// that has all of its steps, err the first step in which the two differ.
func goldens(h *trace.History, cfg spec.Config) (known bool, err error) {
	variants, err := golden.Variants()
	if err != nil {
		return false, nil // golden's own tests report it
	}
	if !cfg.Plan.Exact(cfg.Model) {
		return false, nil
	}
	for _, v := range variants {
		g, err := golden.LoadFingerprints(v.Name)
		if err != nil || g.Comparable(cfg, h.Header.Arithmetic, cfg.TextHash) != nil {
			continue
		}
		for step := range min(cfg.Steps, len(g.Steps)) {
			got, err := spec.FingerprintAt(h, step)
			if err != nil {
				return false, nil
			}
			if want := g.Steps[step]; got != want {
				return true, fmt.Errorf("step %d is not that of golden %s: %s, not %s", step, g.Name, got, want)
			}
		}
		return cfg.Steps <= len(g.Steps), nil
	}
	return false, nil
}

// result is what an event says a number of.
type result struct {
	kind               trace.Kind
	rank, step, worker int
	what, tensor       string
}

// results are the events of a run that hold numbers which the cut into
// micro-batches does not change.
func results(h *trace.History) map[result][]trace.Event {
	out := map[result][]trace.Event{}
	for e := range h.All {
		switch e.Kind {
		case trace.KindDigest, trace.KindChanged, trace.KindUnmoved, trace.KindScalar, trace.KindSkip, trace.KindTokens:
			k := result{e.Kind, e.Rank, e.Step, e.Worker, e.What, e.Tensor}
			out[k] = append(out[k], e)
		}
	}
	return out
}

// differ says what two runs of one task and plan have recorded both, and
// otherwise; empty where that is nothing.
func differ(a, b *trace.History) string {
	mine, theirs := results(a), results(b)
	var out []result
	for k, x := range mine {
		if y, ok := theirs[k]; ok && !slices.EqualFunc(x, y, sameNumbers) {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return ""
	}
	first := slices.MinFunc(out, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.kind, b.kind), cmp.Compare(a.rank, b.rank), cmp.Compare(a.what, b.what), cmp.Compare(a.tensor, b.tensor), cmp.Compare(a.worker, b.worker))
	})
	return fmt.Sprintf("%s %s %s of rank %d in step %d is another, the first of %d", first.kind, first.what, first.tensor, first.rank, first.step, len(out))
}

// sameNumbers compares two events about one thing. Bits tell NaN from NaN no more
// than the runs do.
func sameNumbers(x, y trace.Event) bool {
	if (x.Digest == nil) != (y.Digest == nil) || x.Digest != nil && *x.Digest != *y.Digest {
		return false
	}
	value := x.Value == y.Value || x.Value != x.Value && y.Value != y.Value
	return value && x.Bits == y.Bits && x.Count == y.Count && slices.Equal(x.Ranges, y.Ranges)
}
