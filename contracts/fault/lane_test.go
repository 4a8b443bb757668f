package fault

import (
	"reflect"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Every kernel has its lanes: a new one without is a gap.
func TestLanesAreOfAllKernels(t *testing.T) {
	all := reflect.TypeFor[kernels.Kernels]()
	for i := range all.NumMethod() {
		if outputs[all.Method(i).Name] == 0 {
			t.Errorf("kernel %s has no wrong lane", all.Method(i).Name)
		}
	}
	if all.NumMethod() != len(outputs) {
		t.Errorf("%d kernels, lanes of %d", all.NumMethod(), len(outputs))
	}
}

// A wrong lane is wrong in its kernel, and in no other.
func TestLanesAreWrong(t *testing.T) {
	for _, l := range Lanes() {
		cases := drill.Cases(drill.Options{Seed: 1, Level: 1, Only: []string{l.Kernel}})
		be := l.on(ref.New[float32]())
		wrong := 0
		if err := drill.Run(t.Context(), be, ref.New[float32](), cases, func(r drill.Result) {
			if r.Difference != nil {
				wrong++
			}
		}); err != nil {
			t.Fatal(err)
		}
		if wrong == 0 {
			t.Errorf("%s output %d: none of %d cases differs", l.Kernel, l.Output, len(cases))
		}
		other := "Add"
		if l.Kernel == other {
			other = "Copy"
		}
		_ = drill.Run(t.Context(), be, ref.New[float32](), drill.Cases(drill.Options{Seed: 1, Level: 1, Only: []string{other}})[:5], func(r drill.Result) {
			if r.Difference != nil {
				t.Errorf("%s output %d: kernel %s is wrong too", l.Kernel, l.Output, other)
			}
		})
	}
}
