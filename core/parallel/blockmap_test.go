package parallel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// sharings are the plans that give whole blocks or tensors to ranks.
func sharings(dp int) []plan.Plan {
	return []plan.Plan{
		{DP: dp, Zero: 1, Shard: plan.ShardRoundRobin}, {DP: dp, Zero: 1, Shard: plan.ShardContiguous},
		{DP: dp, Zero: 1, Shard: plan.ShardBalanced}, {DP: dp, Zero: 3, Shard: plan.ShardTensors},
	}
}

// ownerOf is the one rank that owns all of a bucket; any other share fails the
// test.
func ownerOf(t *testing.T, name string, s *Bucket, dp int) int {
	t.Helper()
	who := -1
	for r := range dp {
		switch own := s.Own(r); {
		case own == s.Range && who < 0:
			who = r
		case !own.Empty():
			t.Errorf("%s: rank %d owns %v of bucket %s %v", name, r, own, s.Name, s.Range)
		}
	}
	if who < 0 {
		t.Errorf("%s: nobody owns bucket %s", name, s.Name)
	} else if got := owner(s.Bounds); got != who {
		t.Errorf("%s: owner says rank %d, rank %d owns bucket %s", name, got, who, s.Name)
	}
	return who
}

// Buckets of one owner follow each other, cover what has a state, do not cross
// units; a tied head's source is its embedding's owner's.
func TestOneOwnerBuckets(t *testing.T) {
	layouts(t, func(name string, c model.Config, p plan.Plan, l *model.Layout) {
		for _, dp := range []int{1, 2, 3, 8} {
			for _, q := range sharings(dp) {
				q.TP, q.PP, q.Vocab = p.TP, p.PP, p.Vocab
				buckets, err := Buckets(q, c, l)
				if err != nil {
					t.Fatal(err)
				}
				checkOwners(t, fmt.Sprintf("%s %s", name, q), buckets, l, dp)
			}
		}
	})
}

func checkOwners(t *testing.T, name string, buckets []Bucket, l *model.Layout, dp int) {
	t.Helper()
	next := 0
	for i := range buckets {
		s := &buckets[i]
		who := ownerOf(t, name, s, dp)
		if u := l.Units[s.Unit].Range; s.Lo != next || s.Intersect(u) != s.Range {
			t.Errorf("%s: bucket %s is %v of unit %v, want it to start at %d", name, s.Name, s.Range, u, next)
		}
		next = s.Hi
		if s.Source && l.Units[0].Name == model.EmbedUnit {
			if embed := ownerOf(t, name, &buckets[0], dp); who != embed {
				t.Errorf("%s: rank %d owns the head's source, rank %d the embedding", name, who, embed)
			}
		}
	}
	if next != l.Grads {
		t.Errorf("%s: the buckets end at %d of %d", name, next, l.Grads)
	}
}

// The maps give blocks to the ranks that their names say.
func TestBlockOwners(t *testing.T) {
	c, err := model.Named("nano")
	if err != nil {
		t.Fatal(err)
	}
	l := model.NewLayout(c, model.Whole(c))
	for _, x := range []struct {
		kind string
		dp   int
		want []int // embed, blocks, norm, head
	}{
		{plan.ShardRoundRobin, 3, []int{0, 0, 1, 2, 0, 0, 0}},
		{plan.ShardContiguous, 3, []int{0, 0, 0, 1, 2, 0, 0}},
		{plan.ShardContiguous, 8, []int{0, 0, 1, 2, 3, 0, 0}},
		// Four blocks of 12,352 elements, embedding and head of 8,192, a norm of 32.
		{plan.ShardBalanced, 2, []int{0, 0, 1, 0, 1, 0, 1}},
		{plan.ShardBalanced, 8, []int{4, 0, 1, 2, 3, 6, 5}},
	} {
		buckets, err := Buckets(plan.Plan{DP: x.dp, Zero: 1, Shard: x.kind}, c, &l)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for i := range buckets {
			got = append(got, ownerOf(t, x.kind, &buckets[i], x.dp))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s dp=%d: owners %v, want %v", x.kind, x.dp, got, x.want)
		}
	}
}

// Tensors are dealt out in the order of their names, whatever the layout's.
func TestTensorOwners(t *testing.T) {
	c, err := model.Named("odd")
	if err != nil {
		t.Fatal(err)
	}
	l := model.NewLayout(c, model.Whole(c))
	buckets, err := Buckets(plan.Plan{DP: 3, Zero: 3, Shard: plan.ShardTensors}, c, &l)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	var names []string
	for i := range buckets {
		if !buckets[i].Source {
			at[buckets[i].Name] = ownerOf(t, "tensors", &buckets[i], 3)
			names = append(names, buckets[i].Name)
		}
	}
	slices.Sort(names)
	for i, n := range names {
		if at[n] != i%3 {
			t.Errorf("tensor %d, %s, belongs to rank %d", i, n, at[n])
		}
	}
	if len(names) != 4*12+2 {
		t.Errorf("%d tensors", len(names))
	}
}

// A stage deals out its own blocks, and the last one cuts the head's source as
// the first one cuts the embedding.
func TestOwnersOfStages(t *testing.T) {
	c, err := model.Named("odd")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range sharings(4) {
		p.PP = 2
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
		source := &b[len(b)-1]
		if want := (shard.Range{Lo: last.Owned, Hi: last.Grads}); !source.Source || source.Range != want {
			t.Fatalf("%s: the last bucket is %+v", p, source)
		}
		if got, want := ownerOf(t, "source", source, 4), ownerOf(t, "embedding", &a[0], 4); got != want {
			t.Errorf("%s: rank %d owns the source, rank %d the embedding", p, got, want)
		}
	}
}
