package evidence_test

import (
	"math"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// of is the digest of elements of a parameter that all have the same bits.
func of(name string, n int64, bits uint64) *kernels.Digest {
	var d kernels.Digest
	for i := range n {
		a, b := kernels.Mix(kernels.TensorID(name), uint64(i), bits)
		d.Add(kernels.Digest{A: a, B: b})
	}
	return &d
}

// TestIdle: a parameter with a gradient that no step moves is named; one that
// moved, was not pulled, or may not move in any step that is known is not.
func TestIdle(t *testing.T) {
	const name = "model.norm.weight"
	base := spread(t, "dp=1")
	var n int64
	for _, p := range base.Params {
		if p.Name == name {
			n = p.Len
		}
	}
	for _, x := range []struct {
		name             string
		before, after, g uint64 // bits of the elements
		lr, norm         trace.Float
		idle             bool
	}{
		{"it stays", 7, 7, 1, 0.1, 2, true},
		{"it moves", 7, 8, 1, 0.1, 2, false},
		{"no gradient", 7, 7, 0, 0.1, 2, false},
		{"no rate", 7, 7, 1, 0, 2, false},
		{"a step that was skipped", 7, 7, 1, 0.1, trace.Float(math.Inf(1)), false},
	} {
		h := *base.History
		h.Ranks = map[int][]trace.Event{0: {
			{Kind: trace.KindDigest, Step: -1, What: trace.Weight, Tensor: name, Count: n, Digest: of(name, n, x.before)},
			{Kind: trace.KindDigest, What: trace.Grad, Tensor: name, Count: n, Digest: of(name, n, x.g)},
			{Kind: trace.KindScalar, What: trace.LR, Value: x.lr},
			{Kind: trace.KindScalar, What: trace.Norm, Value: x.norm},
			{Kind: trace.KindDigest, What: trace.Weight, Tensor: name, Count: n, Digest: of(name, n, x.after)},
			{Kind: trace.KindEnd},
		}}
		r, err := evidence.New(&h)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Idle(); (got != "") != x.idle || x.idle && !strings.Contains(got, name) {
			t.Errorf("%s: %q", x.name, got)
		}
		res := judge(evidence.With(func(p *contract.Pass, _ *evidence.Run) { p.Found(true) }), map[contract.Role]*trace.History{contract.Test: &h})
		if (res.Verdict() == contract.Held) == x.idle {
			t.Errorf("%s: %s", x.name, res.Verdict())
		}
	}
}

// TestIdleSlices: of a parameter in slices, one of which has a gradient of zeros, it
// is the other that says whether it was pulled.
func TestIdleSlices(t *testing.T) {
	const name = "model.layers.0.self_attn.q_proj.weight"
	base := spread(t, "dp=1,tp=2")
	for _, pulled := range []bool{false, true} {
		h := *base.History
		h.Ranks = map[int][]trace.Event{}
		for _, held := range base.Held()[name] {
			n := int64(held.Param.Len())
			weight, grad := of(name, n, 7), &kernels.Digest{}
			for i := range n {
				bits := uint64(0)
				if pulled && held.Rank == 1 {
					bits = 1
				}
				a, b := kernels.Mix(held.Param.ID, uint64(held.Index(i)), bits)
				grad.Add(kernels.Digest{A: a, B: b})
			}
			h.Ranks[held.Rank] = []trace.Event{
				{Kind: trace.KindDigest, Rank: held.Rank, Step: -1, What: trace.Weight, Tensor: name, Count: n, Digest: weight},
				{Kind: trace.KindDigest, Rank: held.Rank, What: trace.Grad, Tensor: name, Count: n, Digest: grad},
				{Kind: trace.KindScalar, Rank: held.Rank, What: trace.LR, Value: 0.1},
				{Kind: trace.KindScalar, Rank: held.Rank, What: trace.Norm, Value: 2},
				{Kind: trace.KindDigest, Rank: held.Rank, What: trace.Weight, Tensor: name, Count: n, Digest: weight},
			}
		}
		r, err := evidence.New(&h)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Idle(); (got != "") != pulled {
			t.Errorf("pulled=%v: %q", pulled, got)
		}
	}
}

// TestIdleTiny: SGD may leave a parameter with a tiny gradient as it is, unless all
// stay; AdamW moves every one.
func TestIdleTiny(t *testing.T) {
	const moves, stays = "model.norm.weight", "model.layers.0.input_layernorm.weight"
	base := spread(t, "dp=1")
	events := func(name string, after uint64) []trace.Event {
		n := int64(base.Held()[name][0].Param.Len())
		return []trace.Event{
			{Kind: trace.KindDigest, Step: -1, What: trace.Weight, Tensor: name, Count: n, Digest: of(name, n, 7)},
			{Kind: trace.KindDigest, What: trace.Grad, Tensor: name, Count: n, Digest: of(name, n, 1)},
			{Kind: trace.KindDigest, What: trace.Weight, Tensor: name, Count: n, Digest: of(name, n, after)},
		}
	}
	for _, x := range []struct {
		optimizer string
		after     uint64 // bits of the one that may move
		idle      bool
	}{{"sgd", 8, false}, {"sgd", 7, true}, {"adamw", 8, true}} {
		h := *base.History
		h.Ranks = map[int][]trace.Event{0: append(append(events(moves, x.after), events(stays, 7)...),
			trace.Event{Kind: trace.KindScalar, What: trace.LR, Value: 0.1}, trace.Event{Kind: trace.KindScalar, What: trace.Norm, Value: 2})}
		r, err := evidence.New(&h)
		if err != nil {
			t.Fatal(err)
		}
		r.Config.Optimizer.Name = x.optimizer
		if got := r.Idle(); (got != "") != x.idle {
			t.Errorf("%+v: %q", x, got)
		}
	}
}
