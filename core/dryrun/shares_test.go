package dryrun_test

import (
	"math"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// each reports on every plan of the list, validated.
func each(t *testing.T, f func(c spec.Config, r *dryrun.Report)) {
	for name, texts := range plans() {
		for _, text := range texts {
			c := config(t, name, text)
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			f(c, report(t, c))
		}
	}
}

// owned counts the elements with an optimizer state on a stage's first
// tensor-parallel rank, by its layouts.
func owned(c spec.Config, stage int) int {
	n := 0
	for _, part := range c.Plan.Parts(c.Model, names.Coord{PP: stage}) {
		l := model.NewLayout(c.Model, part)
		n += l.Owned
	}
	return n
}

// What ZeRO saves is what the ranks do not hold of what they would hold.
func TestSaved(t *testing.T) {
	each(t, func(c spec.Config, r *dryrun.Report) {
		for _, k := range r.Ranks {
			if c.Plan.Zero == 0 {
				if k.Saved != nil {
					t.Errorf("%s %s: saved %+v without ZeRO", c.Model.Name, c.Plan, k.Saved)
				}
				continue
			}
			s := *k.Saved
			if s.Bytes != uint64(k.Memory.Moments) || s.Share != float64(s.Full-s.Bytes)/float64(s.Full) || s.Ideal != float64(c.Plan.DP-1)/float64(c.Plan.DP) {
				t.Errorf("%s %s, ranks %v: %+v, moments of %d bytes", c.Model.Name, c.Plan, k.IDs, s, k.Memory.Moments)
			}
			if c.Plan.TP == 1 && s.Full != uint64(8*owned(c, k.Stage)) {
				t.Errorf("%s %s, stage %d: %d bytes without sharding, its layout has %d elements", c.Model.Name, c.Plan, k.Stage, s.Full, owned(c, k.Stage))
			}
		}
	})
}

// A block map's fractions are those of the moments that its ranks hold.
func TestMaps(t *testing.T) {
	found := 0
	each(t, func(c spec.Config, r *dryrun.Report) {
		mapped := c.Plan.Zero == 1 && c.Plan.Shard != plan.ShardFlat
		for i, s := range r.Stages {
			if !mapped {
				if s.Maps != nil {
					t.Errorf("%s %s: a block map %+v", c.Model.Name, c.Plan, s.Maps)
				}
				continue
			}
			found++
			m := s.Maps[0]
			for _, k := range r.Ranks {
				for _, id := range k.IDs {
					if at := c.Plan.Dims().Coord(id); at.PP == i && at.TP == 0 {
						want := float64(k.Memory.Moments) / float64(8*owned(c, i))
						if m.Fractions[at.DP] != want || (want == 0) != slices.Contains(m.Idle, at.DP) {
							t.Errorf("%s %s, rank %d: holds %v of the state, the map says %+v", c.Model.Name, c.Plan, id, want, m)
						}
					}
				}
			}
			if want := slices.Max(m.Fractions) * float64(c.Plan.DP); math.Abs(m.MaxOverMean-want) > 1e-12 {
				t.Errorf("%s %s: most over mean %v, by the fractions %v", c.Model.Name, c.Plan, m.MaxOverMean, want)
			}
		}
	})
	if found == 0 {
		t.Error("no plan with a block map")
	}
}

// Fractions and slices of tensor parallelism are those of the layouts.
func TestTensorParallelShares(t *testing.T) {
	found := 0
	each(t, func(c spec.Config, r *dryrun.Report) {
		if (r.Tensor != nil) != (c.Plan.TP > 1) {
			t.Fatalf("%s %s: tensor parallelism %+v", c.Model.Name, c.Plan, r.Tensor)
		}
		if r.Tensor == nil {
			return
		}
		found++
		for tp, f := range r.Tensor.Fractions {
			elements, biases, full := 0, 0, int(c.Model.Params())
			for pp := range c.Plan.PP {
				for _, part := range c.Plan.Parts(c.Model, names.Coord{PP: pp, TP: tp}) {
					l := model.NewLayout(c.Model, part)
					for i := range l.Params {
						switch p := &l.Params[i]; {
						case p.Off >= l.Owned:
						case p.Rows == 1 && p.Name != model.NormName && p.Cols != c.Model.Hidden:
							biases += p.Len()
						default:
							elements += p.Len()
						}
					}
				}
			}
			if c.Model.QKVBias {
				full -= c.Model.Layers * (c.Model.QDim() + 2*c.Model.KVDim())
			} else if biases != 0 {
				t.Fatalf("%s: %d elements of biases", c.Model.Name, biases)
			}
			if want := float64(elements) / float64(full); f != want {
				t.Errorf("%s %s, tp rank %d: holds %v of the weights, its layouts %v", c.Model.Name, c.Plan, tp, f, want)
			}
		}
		checkSlices(t, c, r.Tensor.Slices)
	})
	if found == 0 {
		t.Error("no plan with tensor parallelism")
	}
}

func checkSlices(t *testing.T, c spec.Config, got []dryrun.Slice) {
	t.Helper()
	l := model.NewLayout(c.Model, c.Plan.Parts(c.Model, names.Coord{})[0])
	i := 0
	for j := range l.Params {
		p := &l.Params[j]
		if p.Rows == 1 || l.Units[p.Unit].Name != model.BlockUnit(0) {
			continue
		}
		want := dryrun.Slice{Layer: "column-parallel", Shape: [2]int{p.R.Len(), p.C.Len()}, Full: [2]int{p.Rows, p.Cols}}
		if p.C.Len() < p.Cols {
			want.Layer = "row-parallel"
		}
		want.Name = got[i].Name
		if got[i] != want {
			t.Errorf("%s %s, %s: %+v, the layout has %+v", c.Model.Name, c.Plan, p.Name, got[i], want)
		}
		i++
	}
	if i != len(got) {
		t.Errorf("%s %s: %d slices, a block has %d matrices", c.Model.Name, c.Plan, len(got), i)
	}
}

// The cost model of the blocks' all-reduces is what the ranks send.
func TestBlockAllReduces(t *testing.T) {
	found := 0
	check := func(c spec.Config, r *dryrun.Report) {
		if c.Plan.DP > 1 || c.Plan.TP == 1 {
			return
		}
		found++
		var got dryrun.AllReduces
		for _, s := range r.Stages {
			got.Times += s.Blocks.Times
			got.Wire += s.Blocks.Wire
		}
		want := dryrun.AllReduces{}
		for _, x := range r.Traffic {
			if x.What == "blocks forward" || x.What == "blocks backward" {
				want.Times += uint64(x.Times)
				want.Wire += uint64(x.Bytes)
			}
		}
		if got != want {
			t.Errorf("%s %s: the blocks' all-reduces are %+v, of all traffic %+v", c.Model.Name, c.Plan, got, want)
		}
		s, sent := r.Stages[0].Blocks, uint64(r.Ranks[0].Sent[names.TP])
		if c.Plan.Vocab == plan.VocabReplicated && c.Plan.PP == 1 && s.Busiest != sent {
			t.Errorf("%s %s: the busiest rank sends %d bytes, by the cost model %d", c.Model.Name, c.Plan, sent, s.Busiest)
		}
		if s.Logical*2*uint64(c.Plan.TP-1) != s.Wire {
			t.Errorf("%s %s: %d bytes are reduced, %d sent", c.Model.Name, c.Plan, s.Logical, s.Wire)
		}
	}
	each(t, check)
	chunks := config(t, "nano", "tp=2,pp=2,schedule=interleaved,virtual=2")
	check(chunks, report(t, chunks))
	if found == 0 {
		t.Error("no plan with tensor parallelism alone")
	}
}
