package train

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// A configuration is compared field by field, whatever fields it has; what may differ
// is listed. Every field is tried by contracts/ckpt.
func TestCompatible(t *testing.T) {
	for says, change := range map[string]func(c *spec.Config){
		"optimizer.clip is 3.1 there and 3.2 here":              func(c *spec.Config) { c.Optimizer.Clip = 3.2 },
		"optimizer.min_lr is of no value there and 0.0001 here": func(c *spec.Config) { c.Optimizer.MinLR = 1e-4 },
		"model.groups.data is 8 there and 16 here":              func(c *spec.Config) { c.Model.Groups.Data = 16 },
		"model.tied is of no value there and true here":         func(c *spec.Config) { c.Model.Tied = true },
		"blank is of no value there and [1,3] here":             func(c *spec.Config) { c.Blank = []int{1, 3} },
		"seed is 1 there and 18446744073709551615 here":         func(c *spec.Config) { c.Seed = 1<<64 - 1 },
		"": func(c *spec.Config) {
			c.Plan, c.Steps, c.Backend, c.Text, c.Recording = plan.Plan{DP: 4, Zero: 3}, 99, "cpu", "another", spec.Recording{Digests: true}
		},
	} {
		old, err := spec.Preset("nano")
		if err != nil {
			t.Fatal(err)
		}
		now := old
		change(&now)
		err = compatible(old.Spec(), now)
		if says == "" && err != nil || says != "" && (err == nil || !strings.HasPrefix(err.Error(), says)) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	was, is := map[string]any{"model": map[string]any{"new": true}}, map[string]any{"model": map[string]any{}}
	for _, err := range []error{equal("", was, is), equal("", is, was), equal("", was, map[string]any{})} {
		if err == nil {
			t.Error("a field that only one configuration has is not compared")
		}
	}
}
