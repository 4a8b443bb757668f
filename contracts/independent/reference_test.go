package independent_test

import (
	"math"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/golden"
)

// shape is that of a core configuration, field by field.
func shape(c model.Config) independent.Shape {
	return independent.Shape{Vocab: c.Vocab, Hidden: c.Hidden, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Intermediate: c.Intermediate, SeqLen: c.SeqLen, Tied: c.Tied, QKVBias: c.QKVBias, LinearBias: c.LinearBias,
		NormEps: c.NormEps, RopeTheta: c.RopeTheta, InitStd: c.InitStd, InitBias: c.InitBias}
}

func newModel(t testing.TB, s independent.Shape, weights map[string][]float32) *independent.Model {
	t.Helper()
	m, err := independent.New(s, weights)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func evaluate(t testing.TB, m *independent.Model, b independent.Batch, pins independent.Pins) *independent.Result {
	t.Helper()
	r, err := m.Evaluate(b, pins)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// distance is the largest difference in parts of the largest magnitude of want.
func distance(got, want []float64) float64 {
	diff, top := 0.0, 0.0
	for i, w := range want {
		diff, top = max(diff, math.Abs(got[i]-w)), max(top, math.Abs(w))
	}
	return diff / top
}

// The first step's loss and gradients are PyTorch's, which computed them in
// float64 and are stored in full.
func TestGradientsArePyTorchs(t *testing.T) {
	for _, name := range golden.References() {
		r, err := golden.LoadReference(name)
		if err != nil {
			t.Fatal(err)
		}
		st := r.Steps[0]
		got := evaluate(t, newModel(t, shape(r.Model), r.Initial), independent.Batch{Tokens: st.Tokens, Targets: st.Targets, Seqs: st.Seqs}, nil)
		worst := math.Abs(got.Loss.Value[0]-st.Loss) / st.Loss
		if len(got.Gradients) != len(r.Params) {
			t.Errorf("%s: %d gradients, want %d", name, len(got.Gradients), len(r.Params))
		}
		for _, p := range r.Params {
			worst = max(worst, distance(got.Gradients[p].Value, r.Gradient[p]))
		}
		t.Logf("%s: largest difference %.2g of a tensor's largest magnitude", name, worst)
		if !(worst < 1e-12) {
			t.Errorf("%s: off by %.2g", name, worst)
		}
	}
}
