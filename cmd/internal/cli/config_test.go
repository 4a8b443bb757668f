package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// own is what a file says: no field has its default, no two have one number.
func own() spec.Config {
	return spec.Config{
		Model: model.Config{Name: "own", Vocab: 300, Hidden: 24, Layers: 3, Heads: 12, KVHeads: 6, HeadDim: 10, Intermediate: 36, SeqLen: 7,
			Tied: true, QKVBias: true, LinearBias: true, NormEps: 3e-5, RopeTheta: 5000, InitStd: 0.07, InitBias: 0.04, Groups: model.Groups{Tensor: 2, Data: 8}},
		Optimizer: optim.Config{Name: "sgd", LR: 0.02, Beta1: 0.6, Beta2: 0.75, Eps: 3e-7, Momentum: 0.3, Decay: 0.25, Clip: 1.5, Warmup: 5, Horizon: 50, MinLR: 1e-4},
	}
}

// said is the text of a file that says c.
func said(t *testing.T, c spec.Config) []byte {
	var model map[string]any
	b, err := json.Marshal(c.Model)
	if err == nil {
		err = json.Unmarshal(b, &model)
	}
	if err == nil {
		model["optimizer"] = c.Optimizer
		b, err = json.Marshal(model)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// each calls f for every field of a struct and of those within.
func each(v reflect.Value, path string, f func(at string, field reflect.Value)) {
	for i := range v.NumField() {
		if at := path + "." + v.Type().Field(i).Name; v.Field(i).Kind() == reflect.Struct {
			each(v.Field(i), at, f)
		} else {
			f(at, v.Field(i))
		}
	}
}

// Every field of a file arrives: all at once, and each by itself, beside the others'
// defaults.
func TestEveryFieldOfAFileArrives(t *testing.T) {
	want := own()
	sizes := spec.Config{Model: model.Config{Vocab: 300, Hidden: 24, Layers: 3, Heads: 12, KVHeads: 6, HeadDim: 10, Intermediate: 36, SeqLen: 7}}
	plain, err := configOf(said(t, sizes), "plain.json")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[any]string{}
	differ := func(at string, x reflect.Value) {
		if other := seen[x.Interface()]; x.Kind() != reflect.Bool && other != "" {
			t.Errorf("%s and %s are both %v: one in place of the other is not seen", at, other, x)
		}
		seen[x.Interface()] = at
	}
	each(reflect.ValueOf(want.Model), "model", differ)
	each(reflect.ValueOf(want.Optimizer), "optimizer", differ)

	got, err := configOf(said(t, want), "all.json")
	if err != nil || got.Model != want.Model || got.Optimizer != want.Optimizer {
		t.Errorf("%v, got\n%+v %+v, want\n%+v %+v", err, got.Model, got.Optimizer, want.Model, want.Optimizer)
	}
	alone := func(of func(c *spec.Config) reflect.Value, name string) {
		each(of(&want), name, func(at string, x reflect.Value) {
			in := func(c *spec.Config) reflect.Value {
				v := of(c)
				for _, part := range strings.Split(at, ".")[1:] {
					v = v.FieldByName(part)
				}
				return v
			}
			if in(&sizes).IsZero() && in(&plain).Equal(x) {
				t.Errorf("%s: %v is the default", at, x)
			}
			given, expected := sizes, sizes
			in(&given).Set(x)
			expected.Text, expected.Seed, expected.Model.Name = plain.Text, plain.Seed, plain.Model.Name
			in(&expected).Set(x)
			if err := expected.Validate(); err != nil { // fills the defaults of the others
				t.Fatal(err)
			}
			if got, err := configOf(said(t, given), "plain.json"); err != nil || !reflect.DeepEqual(got, expected) {
				t.Errorf("%s=%v alone: %v, got\n%+v, want\n%+v", at, x, err, got, expected)
			}
		})
	}
	alone(func(c *spec.Config) reflect.Value { return reflect.ValueOf(&c.Model).Elem() }, "model")
	alone(func(c *spec.Config) reflect.Value { return reflect.ValueOf(&c.Optimizer).Elem() }, "optimizer")
}
