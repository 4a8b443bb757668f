package parallel

import (
	"fmt"
	"testing"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// layouts are the layouts of every stage of the fixtures, tied and untied.
func layouts(t *testing.T, f func(name string, c model.Config, p plan.Plan, l *model.Layout)) {
	for _, name := range []string{"nano", "odd"} {
		for _, tied := range []bool{false, true} {
			for _, tp := range []int{1, 4} {
				for _, pp := range []int{1, 2, 4} {
					c, err := model.Named(name)
					if err != nil {
						t.Fatal(err)
					}
					c.Tied = tied
					p := plan.Plan{TP: tp, PP: pp, Vocab: plan.VocabParallel}
					for stage := range pp {
						for r := range tp {
							l := model.NewLayout(c, p.Parts(c, names.Coord{PP: stage, TP: r})[0])
							f(fmt.Sprintf("%s tied=%v tp=%d/%d stage %d/%d", name, tied, r, tp, stage, pp), c, p, &l)
						}
					}
				}
			}
		}
	}
}

func TestFlatBuckets(t *testing.T) {
	layouts(t, func(name string, c model.Config, p plan.Plan, l *model.Layout) {
		for _, dp := range []int{1, 2, 3, 5, 8} {
			for zero := 1; zero <= 3; zero++ {
				p.DP, p.Zero = dp, zero
				buckets, err := Buckets(p, c, l)
				if err != nil {
					t.Fatal(err)
				}
				checkBuckets(t, fmt.Sprintf("%s dp=%d zero=%d", name, dp, zero), buckets, l, dp, zero)
			}
		}
		p.DP, p.Zero = 2, 0
		buckets, err := Buckets(p, c, l)
		if err != nil || len(buckets) != 1 || buckets[0].Range != (shard.Range{Hi: l.Owned}) || buckets[0].Bounds != nil {
			t.Errorf("%s without ZeRO: %+v (%v), want one bucket that every rank owns", name, buckets, err)
		}
	})
}

// checkBuckets: the buckets follow each other and cover what has a state; in
// each the first total mod dp ranks own one element more than the others; the
// units of stages 2 and 3 are buckets of their own.
func checkBuckets(t *testing.T, name string, buckets []Bucket, l *model.Layout, dp, zero int) {
	t.Helper()
	next := 0
	for i := range buckets {
		s := &buckets[i]
		if s.Lo != next || s.Empty() {
			t.Errorf("%s: bucket %s is %v, want it to start at %d", name, s.Name, s.Range, next)
		}
		next = s.Hi
		if s.Source {
			checkSource(t, name, s, &buckets[0], l)
			continue
		}
		at := s.Lo
		for r := range dp {
			own, want := s.Own(r), s.Len()/dp
			if r < s.Len()%dp {
				want++
			}
			if own.Lo != at || own.Len() != want {
				t.Errorf("%s: rank %d owns %v of bucket %v, want %d elements from %d", name, r, own, s.Range, want, at)
			}
			at = own.Hi
		}
		if at != s.Hi {
			t.Errorf("%s: the shards of bucket %v end at %d", name, s.Range, at)
		}
		if zero > 1 && (l.Units[s.Unit].Range != s.Range || l.Units[s.Unit].Name != s.Name) {
			t.Errorf("%s: bucket %s is %v, its unit %+v", name, s.Name, s.Range, l.Units[s.Unit])
		}
	}
	if next != l.Grads {
		t.Errorf("%s: buckets end at %d, want %d", name, next, l.Grads)
	}
}

// checkSource: a tied head's gradient lies where the embedding's does, element
// for element, so that the owner can add the two.
func checkSource(t *testing.T, name string, s, embed *Bucket, l *model.Layout) {
	t.Helper()
	if s.Range != (shard.Range{Lo: l.Owned, Hi: l.Grads}) {
		t.Errorf("%s: the head's source is %v, want [%d,%d)", name, s.Range, l.Owned, l.Grads)
	}
	if l.Units[0].Name != model.EmbedUnit {
		return
	}
	for r := range len(s.Bounds) - 1 {
		own := s.Own(r).Shift(-s.Lo)
		if want := embed.Own(r).Intersect(shard.Range{Hi: s.Len()}); !own.Empty() && own != want || own.Empty() && !want.Empty() {
			t.Errorf("%s: rank %d has %v of the head's source and %v of the embedding", name, r, own, want)
		}
	}
}

// Where the stages of a pipeline are apart, the head's source is cut on the last
// stage as the embedding is on the first.
func TestSourceIsCutAsTheEmbeddingElsewhere(t *testing.T) {
	c, err := model.Named("odd")
	if err != nil {
		t.Fatal(err)
	}
	for zero := 1; zero <= 3; zero++ {
		for _, dp := range []int{2, 3, 4} {
			p := plan.Plan{DP: dp, PP: 2, Zero: zero}
			first := model.NewLayout(c, p.Parts(c, names.Coord{})[0])
			last := model.NewLayout(c, p.Parts(c, names.Coord{PP: 1})[0])
			a, err := Buckets(p, c, &first)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Buckets(p, c, &last)
			if err != nil {
				t.Fatal(err)
			}
			source := b[len(b)-1]
			if !source.Source || source.Len() != c.Vocab*c.Hidden {
				t.Fatalf("zero=%d dp=%d: the last bucket is %+v", zero, dp, source)
			}
			for r := range dp {
				want := a[0].Own(r).Intersect(shard.Range{Hi: source.Len()})
				if own := source.Own(r).Shift(-source.Lo); own.Len() != want.Len() || !own.Empty() && own != want {
					t.Errorf("zero=%d dp=%d: rank %d has %v of the source, %v of the embedding", zero, dp, r, own, want)
				}
			}
		}
	}
}
