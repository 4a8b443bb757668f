package sharding_test

import (
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// The dry run derives memory and traffic as training does, contracts derive them
// by themselves: the two agree, under every form of ZeRO, on every rank.
func TestFormulasAgreeWithTheDryRun(t *testing.T) {
	for name, texts := range map[string][]string{
		"nano": {"", "dp=2", "dp=3", "dp=8,microbatches=3", "dp=2,zero=1", "dp=5,zero=1", "dp=4,zero=2", "dp=4,zero=2,microbatches=6", "dp=8,zero=3",
			"dp=2,zero=3,microbatches=8", "dp=3,zero=3", "dp=1,zero=3", "dp=4,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous",
			"dp=8,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors", "dp=8,zero=3,shard=tensors"},
		"odd": {"", "dp=2,zero=1", "dp=3,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=2,zero=3,microbatches=4", "dp=4,zero=3,shard=tensors",
			"dp=4,zero=1,shard=contiguous", "dp=2,zero=1,shard=balanced", "dp=13,zero=3"},
	} {
		for _, text := range texts {
			c, err := spec.Preset(name)
			if err == nil {
				c.Plan, err = plan.Parse(text)
			}
			if err == nil {
				err = c.Validate()
			}
			if err != nil {
				t.Fatal(err)
			}
			agree(t, c)
		}
	}
}

func agree(t *testing.T, c spec.Config) {
	t.Helper()
	r, err := dryrun.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := model.NewLayout(c.Model, model.Whole(c.Model))
	z := sharding.Of(c.Plan, c.Model, &l, 2)
	for i, n := range unitSizes(c) {
		if z.Units[i].Elements != n {
			t.Errorf("%s: unit %s has %d elements, by the shape of the model %d", c.Model.Name, z.Units[i].Name, z.Units[i].Elements, n)
		}
	}
	for _, k := range r.Ranks {
		for _, id := range k.IDs {
			want := z.Memory(id)
			got := sharding.Memory{Weights: uint64(k.Memory.Weights), Gradients: uint64(k.Memory.Gradients), Moments: uint64(k.Memory.Moments)}
			got.Passing = uint64(k.Memory.State) - got.Weights - got.Gradients - got.Moments
			want.Gathered, want.FullGradient = 0, 0 // parts of Passing
			if got != want {
				t.Errorf("%s %s, rank %d: %+v, formula %+v", c.Model.Name, c.Plan, id, got, want)
			}
		}
	}
	got := int64(0)
	for _, x := range r.Traffic {
		if x.What != "loss" {
			got += x.Bytes
		}
	}
	if want := z.WireBytes(); got != want {
		t.Errorf("%s %s: %d bytes, formula %d", c.Model.Name, c.Plan, got, want)
	}
}

// unitSizes are the units of the whole model, worked out from its shape.
func unitSizes(c spec.Config) []int {
	m := c.Model
	q, kv := m.QDim(), m.KVDim()
	block := m.Hidden*(2+2*q+2*kv+3*m.Intermediate) + map[bool]int{true: q + 2*kv}[m.QKVBias]
	out := []int{m.Vocab * m.Hidden}
	for range m.Layers {
		out = append(out, block)
	}
	last := m.Hidden
	if !m.Tied {
		last += m.Vocab * m.Hidden
	}
	return append(out, last)
}

// What is reduced is labelled by unit, by tensor where tensors are dealt out,
// and where the whole vector is reduced at once by its name; a tied head's
// gradient by its unit.
func TestLabels(t *testing.T) {
	c, err := model.Named("odd")
	if err != nil {
		t.Fatal(err)
	}
	l := model.NewLayout(c, model.Whole(c))
	var units, tensors []string
	for _, u := range l.Units {
		units = append(units, u.Name)
	}
	for _, p := range l.Params[:len(l.Params)-1] {
		tensors = append(tensors, p.Name)
	}
	tensors = append(tensors, model.HeadUnit)
	for text, want := range map[string][]string{
		"dp=2": units, "dp=2,zero=1,shard=balanced": units, "dp=2,zero=2": units, "dp=2,zero=3": units,
		"dp=2,zero=3,shard=tensors": tensors, "dp=2,zero=1": {names.WholeVector, model.HeadUnit},
	} {
		p, err := plan.Parse(text)
		if err == nil {
			err = p.Validate(c, 13)
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		z := sharding.Of(p, c, &l, 2)
		for _, x := range z.Traffic() {
			if x.Gradient {
				got = append(got, x.Label)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q are reduced, want %q", text, got, want)
		}
	}
}
