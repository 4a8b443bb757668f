package spec_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/spec"
)

// TestUnknownFieldsAreRefused: a field that no object of a specification has is
// refused by its name, in the specification and in every object within.
func TestUnknownFieldsAreRefused(t *testing.T) {
	c, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec.Parse(c.Spec()); err != nil {
		t.Fatal(err)
	}
	objects := 0
	var within func(x any, path string)
	var root map[string]any
	within = func(x any, path string) {
		object, ok := x.(map[string]any)
		if !ok {
			return
		}
		objects++
		object["surprise"] = 1
		b, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Parse(b); err == nil || !strings.Contains(err.Error(), `unknown field "surprise"`) {
			t.Errorf("in %s: %v", path, err)
		}
		delete(object, "surprise")
		for name, y := range object {
			within(y, path+"."+name)
		}
	}
	if err := json.Unmarshal(c.Spec(), &root); err != nil {
		t.Fatal(err)
	}
	within(root, "spec")
	if want := structs(reflect.TypeFor[spec.Config]()); objects != want {
		t.Errorf("%d objects, want %d", objects, want)
	}
	if _, err := spec.Parse(append(c.Spec(), "{}"...)); err == nil {
		t.Error("a second value after the specification is not refused")
	}
}

// structs counts a struct type and those of its fields.
func structs(t reflect.Type) int {
	if t.Kind() != reflect.Struct {
		return 0
	}
	n := 1
	for i := range t.NumField() {
		n += structs(t.Field(i).Type)
	}
	return n
}

// TestSizesBeyondIntegersAreRefused: sizes each of which is allowed, of a product
// that no integer holds.
func TestSizesBeyondIntegersAreRefused(t *testing.T) {
	for _, x := range []struct {
		change func(*spec.Config)
		says   string
	}{
		{func(c *spec.Config) {
			c.Model.Hidden, c.Model.Heads, c.Model.KVHeads, c.Model.HeadDim = 1<<24, 1<<20, 1<<20, 1<<20
		}, "parameters: must be at most"},
		{func(c *spec.Config) { c.Model.Vocab, c.Model.Hidden, c.Model.Layers = 1<<24, 1<<24, 1<<24 }, "parameters: must be at most"},
		{func(c *spec.Config) { c.Model.Groups.Data = 1 << 62 }, fmt.Sprintf("groups.data=%d: must be at most", 1<<62)},
		{func(c *spec.Config) { c.Model.Groups.Data = 1 << 16 }, ""},
	} {
		c, err := spec.Preset("nano")
		if err != nil {
			t.Fatal(err)
		}
		c.Plan.MicroBatches = 0
		x.change(&c)
		if _, err := spec.Parse(c.Spec()); err == nil != (x.says == "") || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%v, want %q", err, x.says)
		}
	}
}
