package spec_test

import (
	"reflect"
	"testing"

	"github.com/lockstep-ml/lockstep/core/spec"
)

// TestFixturesDiffer: every real number of a model and of an optimizer, and the
// shape of the schedule, differ between the fixtures, and odd's are no defaults:
// a constant in place of a field gives one of them another answer.
func TestFixturesDiffer(t *testing.T) {
	nano, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	odd, err := spec.Preset("odd")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := spec.Preset("tiny") // fills its numbers with defaults
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	differ := func(a, b, def any) {
		x, y, d := reflect.ValueOf(a), reflect.ValueOf(b), reflect.ValueOf(def)
		for i := range x.NumField() {
			f := x.Type().Field(i)
			if f.Type.Kind() != reflect.Float64 && f.Name != "Warmup" && f.Name != "Horizon" {
				continue
			}
			seen++
			if x.Field(i).Equal(y.Field(i)) || y.Field(i).Equal(d.Field(i)) {
				t.Errorf("%s: nano %v, odd %v, default %v: odd's must be neither", f.Name, x.Field(i), y.Field(i), d.Field(i))
			}
		}
	}
	differ(nano.Model, odd.Model, plain.Model)
	differ(nano.Optimizer, odd.Optimizer, plain.Optimizer)
	if seen != 14 {
		t.Errorf("%d fields compared, want 14", seen)
	}
	if odd.Model.InitStd == odd.Model.InitBias {
		t.Error("odd's matrices and biases start with one deviation: exchanged they are the same")
	}
}
