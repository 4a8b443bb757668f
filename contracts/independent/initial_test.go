package independent_test

import (
	"math"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Parameters, their order aside, and their initial weights are core's, bit for
// bit, and so are the digests.
func TestInitialWeightsAreCores(t *testing.T) {
	for _, name := range []string{"nano", "odd", "tiny"} {
		c, err := model.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		c.LinearBias, c.InitBias = name == "odd", 0.1
		s, layout, seen := shape(c), model.NewLayout(c, model.Whole(c)), 0
		if got := s.Params(); int64(total(got)) != c.Params() {
			t.Errorf("%s: %d parameters, want %d", name, total(got), c.Params())
		}
		byName := map[string]independent.Param{}
		for _, p := range s.Params() {
			byName[p.Name] = p
		}
		for i := range layout.Params {
			p := &layout.Params[i]
			if p.Off >= layout.Owned {
				continue
			}
			seen++
			if want := (independent.Param{Name: p.Name, Rows: p.Rows, Cols: p.Cols, Decays: p.Decays}); byName[p.Name] != want {
				t.Errorf("%s: %+v, want %+v", name, byName[p.Name], want)
			}
			for _, seed := range []uint64{0, 1, math.MaxUint64} {
				want := make([]float32, p.Len())
				c.Initial(p, shard.Range{Hi: p.Len()}, seed, want)
				got := s.Initial(byName[p.Name], seed)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%s seed %d: %s[%d] is %v, want %v", name, seed, p.Name, i, got[i], want[i])
					}
				}
				sameDigest(t, p.Name, want)
			}
		}
		if seen != len(byName) {
			t.Errorf("%s: %d parameters, want %d", name, len(byName), seen)
		}
	}
}

func total(ps []independent.Param) (n int) {
	for _, p := range ps {
		n += p.Len()
	}
	return n
}

func sameDigest(t *testing.T, name string, x []float32) {
	t.Helper()
	var got independent.Digest
	got.Add(name, 0, x[:len(x)/3])
	got.Add(name, len(x)/3, x[len(x)/3:])
	var want kernels.Digest
	for i, f := range x {
		a, b := kernels.Mix(kernels.TensorID(name), uint64(i), uint64(kernels.Bits(f)))
		want.A, want.B = want.A+a, want.B+b
		if f-f != 0 {
			want.NonFinite++
		}
	}
	if text, err := want.MarshalText(); err != nil || got.String() != string(text) {
		t.Errorf("digest of %s: %s, want %s", name, got, text)
	}
}

func TestDigestsOfSpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	sameDigest(t, "x", []float32{0, float32(math.Copysign(0, -1)), inf, -inf, float32(math.NaN()), math.Float32frombits(0xff800001), math.SmallestNonzeroFloat32})
	var a, b independent.Digest
	a.Add("x", 0, []float32{1, 2})
	b.Add("x", 0, []float32{2, 1})
	if a == b {
		t.Error("the order of elements does not enter the digest")
	}
}
