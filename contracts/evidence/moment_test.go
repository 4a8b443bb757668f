package evidence_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// recorded is spread with events of ranks.
func recorded(t *testing.T, p string, events ...trace.Event) *evidence.Run {
	t.Helper()
	h := spread(t, p).History
	for _, e := range events {
		h.Ranks[e.Rank] = append(h.Ranks[e.Rank], e)
	}
	r, err := evidence.New(h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMoment: what a step does in turn, units in the order of their pass.
func TestMoment(t *testing.T) {
	r := spread(t, "dp=2")
	at := func(k trace.Kind, what, unit string) (out struct {
		contract.Phase
		order int
	}) {
		out.Phase, out.order = r.Moment(trace.Event{Kind: k, What: what, Unit: unit})
		return out
	}
	order := []struct{ kind, what, unit string }{
		{"data", "", ""}, {"gather", names.Use, "embed"}, {"tap", trace.Forward, "embed"}, {"gather", names.Use, "block.0"}, {"tap", trace.Forward, "block.0"},
		{"message", trace.Forward, "block.1"}, {"digest", trace.WorkerGrad, "block.1"}, {"tap", trace.Backward, "block.0"},
		{"digest", trace.Grad, "block.0"}, {"scalar", trace.Loss, ""}, {"scalar", trace.Norm, ""}, {"digest", trace.MomentM, "block.0"},
	}
	for i := 1; i < len(order); i++ {
		a, b := order[i-1], order[i]
		x, y := at(trace.Kind(a.kind), a.what, a.unit), at(trace.Kind(b.kind), b.what, b.unit)
		if x.Phase > y.Phase || x.Phase == y.Phase && x.order >= y.order {
			t.Errorf("%v is at %v, %v at %v", a, x, b, y)
		}
	}
	if p, _ := r.Moment(trace.Event{Kind: trace.KindDigest, What: trace.Weight, Step: -1}); p != contract.Initial {
		t.Errorf("before the first step: %v", p)
	}
	published := spread(t, "dp=2,zero=1")
	if p, _ := published.Moment(trace.Event{Kind: trace.KindDigest, What: trace.Weight}); p != contract.Publication || at("digest", trace.Weight, "").Phase != contract.Update {
		t.Errorf("weights of shards are there at %v", p)
	}
	for unit, want := range map[string]contract.Phase{names.Tokens: contract.Data, trace.Norm: contract.Norm, "block.0": contract.Reduction, names.TiedWeight: contract.Publication} {
		if p, _ := r.Moment(trace.Event{Kind: trace.KindComm, Op: names.OpAllReduce, Group: names.DP, Unit: unit}); p != want {
			t.Errorf("operation on %s at %v, want %v", unit, p, want)
		}
	}
}

// TestTold: an ended step with others of a kind shows what was not done.
func TestTold(t *testing.T) {
	leaf, end := trace.Event{Kind: trace.KindLeaf}, trace.Event{Kind: trace.KindScalar, What: trace.Counter, Value: 1}
	for name, x := range map[string]struct {
		events []trace.Event
		want   bool
	}{"nothing": {nil, false}, "no end": {[]trace.Event{leaf}, false}, "no others": {[]trace.Event{end}, false}, "both": {[]trace.Event{leaf, end}, true}} {
		if got := recorded(t, "dp=1", x.events...).Told(0, 0, trace.KindLeaf); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestEarly: a reduction before the gradient that it reduces is complete.
func TestEarly(t *testing.T) {
	reduce := trace.Event{Kind: trace.KindComm, Op: names.OpReduceScatter, Group: names.DP, Unit: "block.0"}
	leaf := func(w int) trace.Event { return trace.Event{Kind: trace.KindLeaf, Unit: "block.0", Worker: w} }
	for name, x := range map[string]struct {
		plan   string
		events []trace.Event
		want   []evidence.Untimely
	}{
		"in turn":          {"dp=2,zero=2", []trace.Event{leaf(0), reduce, leaf(2), reduce}, nil},
		"before its leaf":  {"dp=2,zero=2", []trace.Event{leaf(0), reduce, reduce, leaf(2)}, []evidence.Untimely{{Worker: 2, Unit: "block.0"}}},
		"after all":        {"dp=2", []trace.Event{leaf(0), leaf(1), reduce}, nil},
		"before the last":  {"dp=2", []trace.Event{leaf(0), reduce, leaf(1)}, []evidence.Untimely{{Worker: 1, Unit: "block.0"}}},
		"without a record": {"dp=2", []trace.Event{reduce}, nil},
	} {
		if d := cmp.Diff(x.want, recorded(t, x.plan, x.events...).Early(0)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

// digest of elements of a parameter, captured or not.
func digested(rank, step int, tensor string, capture bool, x ...float32) trace.Event {
	e := trace.Event{Kind: trace.KindDigest, Rank: rank, Step: step, What: trace.Weight, Tensor: tensor, Count: int64(len(x)), Digest: &kernels.Digest{}}
	for i, v := range x {
		a, b := kernels.Mix(kernels.TensorID(tensor), uint64(i), uint64(kernels.Bits(v)))
		e.Digest.Add(kernels.Digest{A: a, B: b})
		e.Squares += trace.Float(v) * trace.Float(v)
	}
	if capture {
		e.Data = x
	}
	return e
}

// TestLikeness: a finding says how got compares with want, and what else has it.
func TestLikeness(t *testing.T) {
	const a, b = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"
	for _, capture := range []bool{true, false} {
		how := map[bool]string{true: "equal to ", false: "by its norm "}[capture]
		want := digested(0, 0, b, capture, 1, 2, 2)
		for name, x := range map[string]struct {
			got    trace.Event
			others []trace.Event
			like   string
			norms  float64
		}{
			"a factor":              {digested(1, 0, b, capture, 2, 4, 4), []trace.Event{digested(0, 0, a, capture, 7, 8, 9), want}, "", 2},
			"another parameter":     {digested(1, 0, b, capture, 3, 4, 12), []trace.Event{digested(0, 0, a, capture, 3, 4, 12), want}, how + a + " of rank 0", 13. / 3},
			"not updated":           {digested(1, 0, b, capture, 3, 4, 12), []trace.Event{digested(1, -1, b, capture, 3, 4, 12), want}, how + "what rank 1 had at the start", 13. / 3},
			"a replica of the same": {digested(1, 0, b, capture, 3, 4, 12), []trace.Event{digested(0, 0, b, capture, 3, 4, 12)}, "", 13. / 3},
			"zero":                  {digested(1, 0, b, capture, 0, 0, 0), nil, "zero in every element", 0},
		} {
			r := recorded(t, "dp=2", append(slices.Clone(x.others), x.got)...)
			res := judge(func(p *contract.Pass) { r.Report(p.At(1, 0).Of(b), x.got, want, "differs") }, nil)
			f := res.Findings[0]
			if f.Like != x.like || float64(f.NormRatio) != x.norms || f.Phase != contract.Update || (f.Index >= 0) != capture {
				t.Errorf("%s, captured %v: %+v", name, capture, f)
			}
		}
	}
}
