package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// nano is the fixture: 4 layers, 8 heads, 4 KV heads, G 4, D 8; 16 sequences.
func nano(t *testing.T) model.Config {
	t.Helper()
	c, err := model.Named("nano")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPlansPrintAsTheyParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want Plan
	}{
		{"dp=1", Plan{DP: 1}},
		{"dp=7", Plan{DP: 7}},
		{"dp=1,tp=4", Plan{DP: 1, TP: 4}},
		{"dp=2,pp=3", Plan{DP: 2, PP: 3}},
		{"dp=4,zero=1", Plan{DP: 4, Zero: 1}},
		{"dp=4,zero=1,shard=round-robin", Plan{DP: 4, Zero: 1, Shard: ShardRoundRobin}},
		{"dp=4,zero=1,shard=contiguous", Plan{DP: 4, Zero: 1, Shard: ShardContiguous}},
		{"dp=4,zero=1,shard=balanced", Plan{DP: 4, Zero: 1, Shard: ShardBalanced}},
		{"dp=4,zero=3,shard=tensors", Plan{DP: 4, Zero: 3, Shard: ShardTensors}},
		{"dp=1,microbatches=24", Plan{DP: 1, MicroBatches: 24}},
		{"dp=1,schedule=gpipe", Plan{DP: 1, Schedule: GPipe}},
		{"dp=1,pp=2,schedule=interleaved,virtual=2", Plan{DP: 1, PP: 2, Schedule: Interleaved, Virtual: 2}},
		{"dp=1,tp=2,vocab=parallel", Plan{DP: 1, TP: 2, Vocab: VocabParallel}},
		{"dp=2,comm=ring", Plan{DP: 2, Comm: names.Ring}},
		{"dp=2,comm=mpi", Plan{DP: 2, Comm: names.MPI}},
		{"dp=2,comm=star", Plan{DP: 2, Comm: names.Star}},
		{"dp=8,tp=4,pp=2,zero=3,shard=tensors,microbatches=6,schedule=interleaved,virtual=2,vocab=parallel,comm=ring",
			Plan{DP: 8, TP: 4, PP: 2, Zero: 3, Shard: ShardTensors, MicroBatches: 6, Schedule: Interleaved, Virtual: 2, Vocab: VocabParallel, Comm: names.Ring}},
	} {
		got, err := Parse(c.text)
		if err != nil || got != c.want {
			t.Errorf("%s parses as %+v (%v), want %+v", c.text, got, err, c.want)
		}
		if s := c.want.String(); s != c.text {
			t.Errorf("%+v prints as %s, want %s", c.want, s, c.text)
		}
	}
}

// Every key is in the grammar's list and in one of the texts above; defaults
// that are written out are left out again.
func TestDefaultsAreLeftOut(t *testing.T) {
	full := "comm=tree, vocab=replicated , virtual=1,schedule=1f1b,shard=flat,zero=0,pp=1,tp=1,microbatches=8,dp=1"
	p, err := Parse(full)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.String(); got != "dp=1,microbatches=8" {
		t.Errorf("%s prints as %s", full, got)
	}
	for _, key := range strings.Split(Keys, ", ") {
		if !strings.Contains(full, key+"=") {
			t.Errorf("key %s is not in the text", key)
		}
	}
	for _, blank := range []string{"", "  "} {
		if p, err := Parse(blank); err != nil || p != (Plan{}) || p.String() != "dp=1" || p.World() != 1 {
			t.Errorf("%q parses as %+v (%v)", blank, p, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"dp=0":          "dp=0: must be a number from 1 to 1048576",
		"dp=-1":         "dp=-1: must be",
		"dp=x":          "dp=x: must be a number",
		"dp=":           "dp=: must be a number",
		"dp=1e1":        "dp=1e1",
		"dp=1048577":    "dp=1048577: must be a number from 1 to 1048576",
		"dp=2 tp=2":     "commas separate the parts of a plan, as in dp=2,tp=2",
		"dp=2;tp=2":     "as in dp=2,tp=2",
		"dp=4, tp=2 pp": "as in dp=4,tp=2,pp",
		"dp=1=1":        "dp=1=1",
		"zero=4":        "zero=4: must be a number from 0 to 3",
		"zero=-1":       "zero=-1",
		"tp=0":          "tp=0",
		"pp=0":          "pp=0",
		"virtual=0":     "virtual=0: must be a number from 1 to 1024",
		"microbatches=": "microbatches=: must be",
		"ddp=2":         `unknown key "ddp": known are dp, tp`,
		"DP=2":          `unknown key "DP"`,
		"=2":            `unknown key ""`,
		"dp=2,dp=2":     "dp is given twice",
		"dp":            `"dp": want key=value`,
		"dp=2,":         `"": want key=value`,
		"shard=flatt":   "shard=flatt: known are flat, round-robin, contiguous, balanced, tensors",
		"schedule=1F1B": "schedule=1F1B: known are 1f1b, gpipe, interleaved",
		"vocab=":        "vocab=: known are replicated, parallel",
		"comm=nccl":     "comm=nccl: known are tree, ring, star, mpi",
	} {
		p, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), fmt.Sprintf("plan %q", text)) {
			t.Errorf("%q parses as %+v with error %v, want one that says %q", text, p, err, says)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	for _, c := range []struct {
		p    Plan
		says string
	}{
		{Plan{DP: 17}, "dp=17: more ranks than the 16 sequences of a step"},
		{Plan{TP: 3}, "tp=3: must divide groups.tensor=4 of model nano"},
		{Plan{TP: 8}, "tp=8: must divide groups.tensor=4"},
		{Plan{PP: 5}, "pp=5, virtual=1: more stages than the 4 layers"},
		{Plan{PP: 2, Virtual: 3, Schedule: Interleaved}, "pp=2, virtual=3: more stages than the 4 layers"},
		{Plan{PP: 2, Virtual: 2}, "virtual=2: needs schedule=interleaved"},
		{Plan{PP: 2, Schedule: Interleaved}, "schedule=interleaved: needs virtual=2 or more and pp=2"},
		{Plan{PP: 1, Virtual: 2, Schedule: Interleaved}, "schedule=interleaved: needs virtual=2 or more and pp=2"},
		{Plan{DP: 2, Shard: ShardBalanced}, "shard=balanced: needs zero=1"},
		{Plan{DP: 2, Shard: ShardRoundRobin, Zero: 2}, "shard=round-robin: needs zero=1"},
		{Plan{DP: 2, Shard: ShardContiguous, Zero: 3}, "shard=contiguous: needs zero=1"},
		{Plan{DP: 2, Shard: ShardTensors, Zero: 1}, "shard=tensors: needs zero=3"},
		{Plan{DP: 2, MicroBatches: 6}, "microbatches=6: must be a multiple of 4, the logical workers per data-parallel rank (groups.data=8 over dp=2)"},
		{Plan{TP: 8}, "are made as that many groups"},
		{Plan{DP: 16, TP: 1 << 15}, "must divide groups.tensor=4"},
		{Plan{DP: 16, TP: 1 << 17}, "more than 1048576 ranks"},
		// What only a plan that was not parsed can hold.
		{Plan{DP: -2}, "dp=-2: must not be negative"},
		{Plan{MicroBatches: -8}, "microbatches=-8: must not be negative"},
		{Plan{Zero: 4}, "zero=4: must be a number from 0 to 3"},
		{Plan{Zero: -1}, "zero=-1: must be"},
		{Plan{DP: 1 << 21}, "dp=2097152: must be"},
		{Plan{Shard: "striped"}, "shard=striped: known are"},
		{Plan{Comm: "mesh"}, "comm=mesh: known are"},
	} {
		if err := c.p.Validate(nano(t), 16); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: got %v, want an error that says %q", c.p, err, c.says)
		}
	}
}

// What is only planned may have more ranks than what is run.
func TestPlannableHasMoreRanks(t *testing.T) {
	m, p := nano(t), Plan{DP: 1 << 17}
	if err := p.Plannable(m, 1<<17); err != nil {
		t.Error(err)
	}
	if err := p.Validate(m, 1<<17); err == nil || !strings.Contains(err.Error(), "131072 ranks: at most 65536 are run") {
		t.Errorf("got %v", err)
	}
	p.DP = MaxRanks
	if err := p.Validate(m, 1<<17); err != nil {
		t.Error(err)
	}
}

func TestValidateFillsDefaultsOnce(t *testing.T) {
	for _, c := range []struct {
		p            Plan
		microbatches int
	}{
		{Plan{}, 8}, {Plan{DP: 2}, 4}, {Plan{DP: 8, TP: 4, PP: 4}, 1}, {Plan{DP: 8, MicroBatches: 3}, 3},
		{Plan{DP: 3}, 1}, {Plan{DP: 5, MicroBatches: 7}, 7}, {Plan{DP: 16, Zero: 3}, 1}, // beyond the groups: one worker a rank
	} {
		p := c.p
		if err := p.Validate(nano(t), 16); err != nil {
			t.Fatal(err)
		}
		if p.MicroBatches != c.microbatches || p.DP < 1 || p.TP < 1 || p.PP < 1 || p.Virtual != 1 || p.Shard != ShardFlat ||
			p.Schedule != OneF1B || p.Vocab != VocabReplicated || p.Comm != names.Tree {
			t.Errorf("%+v is filled to %+v", c.p, p)
		}
		again := p
		if err := again.Validate(nano(t), 16); err != nil || again != p {
			t.Errorf("%+v, validated again: %+v (%v)", p, again, err)
		}
		back, err := Parse(p.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := back.Validate(nano(t), 16); err != nil || back != p {
			t.Errorf("%s comes back as %+v (%v), want %+v", p, back, err, p)
		}
	}
}

// The ranks' workers are disjoint and cover all workers, in the order that each
// placement promises: consecutive runs, or rounds.
func TestWorkersAreDealtOut(t *testing.T) {
	c := nano(t)
	for dp := 1; dp <= 16; dp++ {
		for zero := range 4 {
			p := Plan{DP: dp, Zero: zero}
			workers := p.Workers(c)
			if want := map[bool]int{true: 8, false: dp}[8%dp == 0]; workers != want {
				t.Errorf("%s computes with %d workers, want %d", p, workers, want)
			}
			var all []int
			for r := range dp {
				mine := p.RankWorkers(c, r)
				for i, w := range mine {
					consecutive, round := w == mine[0]+i && w/len(mine) == r, w == r+i*dp
					if zero < 2 && !consecutive || zero >= 2 && !round {
						t.Errorf("%s: rank %d has workers %v", p, r, mine)
					}
				}
				all = append(all, mine...)
			}
			slices.Sort(all)
			if want := (shard.Part{Size: 1}).Interleave(workers); !cmp.Equal(all, want) {
				t.Errorf("%s: the ranks have workers %v, want %v", p, all, want)
			}
		}
	}
}

func TestExact(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "dp=8": true, "dp=2,tp=4,pp=4,zero=3": true, "dp=3": false, "dp=16": false,
		"comm=ring": true, "dp=2,comm=ring": true, "dp=2,tp=2,pp=4,zero=3,comm=star": true, "dp=4,comm=tree": true,
		"dp=4,comm=ring": false, "dp=4,comm=mpi": false, "dp=2,comm=mpi": true, "tp=4,comm=star": false, "dp=3,comm=ring": false,
	} {
		p, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Exact(nano(t)); got != want {
			t.Errorf("plan %q: exact %v, want %v", text, got, want)
		}
	}
}

// SameBits is reflexive, but for sums of MPI, and symmetric, and says which plans are
// each other's control.
func TestSameBits(t *testing.T) {
	for _, x := range []struct {
		p, q string
		want bool
	}{
		{"dp=3,tp=2,pp=2,zero=3", "dp=3", true},
		{"dp=3,tp=2", "dp=5", false},
		{"dp=3,tp=2", "", false},
		{"dp=4,tp=2,pp=2,zero=1,comm=star", "dp=4,comm=star", true},
		{"dp=4,zero=2,comm=star", "dp=4,comm=star", false}, // ranks walk other workers
		{"dp=4,pp=2,zero=2,comm=star", "dp=4,zero=3,shard=tensors,comm=star", true},
		{"dp=4,comm=star", "dp=4,comm=ring", false},
		{"dp=4,pp=2,schedule=gpipe,comm=ring", "dp=4,comm=ring,microbatches=4", true},
		{"dp=4,pp=2,zero=3,comm=ring", "dp=4,zero=3,comm=ring", true},
		{"dp=4,pp=2,zero=3,shard=tensors,comm=ring", "dp=4,zero=3,shard=tensors,comm=ring", false}, // tensors are dealt out per stage
		{"dp=4,pp=2,zero=1,comm=ring", "dp=4,zero=1,comm=ring", false},                             // the vector of a stage
		{"dp=4,tp=2,comm=ring", "dp=4,comm=ring", false},
		{"dp=4,comm=mpi", "dp=4,comm=mpi", false},
		{"dp=4,pp=2,comm=mpi", "dp=4", false},
		{"dp=2,pp=2,comm=mpi", "dp=2", true},
		{"tp=4,comm=star", "tp=4,comm=star,pp=2", true},
		{"tp=4,comm=ring", "tp=4,comm=ring,pp=2", false},
	} {
		p, err := Parse(x.p)
		q, qerr := Parse(x.q)
		if err != nil || qerr != nil {
			t.Fatal(err, qerr)
		}
		c := nano(t)
		if got := p.SameBits(q, c); got != x.want || q.SameBits(p, c) != got || p.SameBits(p, c) != (p.Comm != names.MPI || p.Exact(c)) || q.SameBits(q, c) != (q.Comm != names.MPI || q.Exact(c)) {
			t.Errorf("%s and %s: %v, want %v", p, q, got, x.want)
		}
	}
}

// The parts of all stages and chunks hold every layer once, in order; only the
// ends have embedding and head.
func TestPartsHoldEveryLayerOnce(t *testing.T) {
	c := nano(t)
	c.Layers = 7
	for _, p := range []Plan{{}, {PP: 2}, {PP: 3}, {PP: 7}, {PP: 2, Virtual: 2, Schedule: Interleaved}, {PP: 3, Virtual: 2, Schedule: Interleaved}} {
		stages := make([]model.Part, max(1, p.PP)*max(1, p.Virtual))
		for s := range max(1, p.PP) {
			for v, part := range p.Parts(c, names.Coord{PP: s}) {
				stages[v*max(1, p.PP)+s] = part
			}
		}
		next := 0
		for i, part := range stages {
			if part.Layers.Lo != next || part.Layers.Empty() {
				t.Errorf("%s: stage %d has layers %v, want some from %d", p, i, part.Layers, next)
			}
			if part.First != (i == 0) || part.Last != (i == len(stages)-1) {
				t.Errorf("%s: stage %d has embedding %v, head %v", p, i, part.First, part.Last)
			}
			next = part.Layers.Hi
		}
		if next != 7 {
			t.Errorf("%s: the stages end at layer %d of 7", p, next)
		}
	}
}

func TestTensorParts(t *testing.T) {
	c := nano(t)
	for _, p := range []Plan{{TP: 4}, {TP: 4, Vocab: VocabParallel}, {TP: 1, Vocab: VocabParallel}} {
		for r := range p.TP {
			part := p.Parts(c, names.Coord{TP: r})[0]
			if want := (shard.Part{Index: r, Size: p.TP}); part.Tensor != want || part.VocabParallel != (p.Vocab == VocabParallel && p.TP > 1) {
				t.Errorf("%s: rank %d has part %+v", p, r, part)
			}
		}
	}
	c.KVHeads = 2
	for tp, want := range map[int]int{1: 1, 2: 1, 4: 2, 8: 4} {
		if got := (Plan{TP: tp}).KVReplicas(c); got != want {
			t.Errorf("tp=%d: %d copies of a KV head, want %d", tp, got, want)
		}
	}
	if got, want := (Plan{DP: 2, PP: 3, TP: 4}).Dims(), (names.Dims{DP: 2, PP: 3, TP: 4}); got != want || got.World() != 24 {
		t.Errorf("axes %+v, want %+v", got, want)
	}
}
