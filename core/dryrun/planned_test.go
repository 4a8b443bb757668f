package dryrun_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// What cannot be run can be planned; the report says why it cannot be run.
func TestPlannedBeyondWhatIsRun(t *testing.T) {
	for _, x := range []struct {
		config, plan string
		sequences    int
		says         []string
	}{
		{"llama2-7b", "tp=16", 16, []string{"tp=16 is planned and cannot be run", "groups.tensor=8 groups"}},
		{"llama3-8b", "dp=2,tp=32,vocab=parallel", 16, []string{"tp=32 is planned"}},
		{"llama2-13b", "dp=1024,tp=8,pp=16,zero=1", 100000, []string{"131072 ranks are planned and cannot be run: at most 65536 can"}},
		{"nano", "dp=8,tp=8", 16, []string{"tp=8 is planned"}},
	} {
		c := config(t, x.config, x.plan)
		c.Sequences = x.sequences
		r := report(t, c)
		var b strings.Builder
		if err := r.Text(&b); err != nil {
			t.Fatal(err)
		}
		for _, s := range x.says {
			if !strings.Contains(strings.Join(r.Notes, "\n"), s) || !strings.Contains(b.String(), s) {
				t.Errorf("%s: notes %q lack %q", x.plan, r.Notes, s)
			}
		}
		n := 0
		for _, k := range r.Ranks {
			n += k.Count
			if (len(k.IDs) == 0) != (r.World > plan.MaxRanks) || len(k.IDs) > 0 && (len(k.IDs) != k.Count || k.IDs[0] != k.First) {
				t.Errorf("%s: %d ranks of which %d are listed", x.plan, k.Count, len(k.IDs))
			}
		}
		if n != c.Plan.World() || r.Exact || strings.Contains(b.String(), "bits of the single worker\n") {
			t.Errorf("%s: %d of %d ranks, exact %v", x.plan, n, c.Plan.World(), r.Exact)
		}
		if err := c.Validate(); err == nil {
			t.Errorf("%s could be run", x.plan)
		}
		if _, err := dryrun.Fits(c, func(int) []int { return nil }, 1); err == nil {
			t.Errorf("%s fits", x.plan)
		}
	}
	if r := report(t, config(t, "nano", "tp=4")); len(r.Notes) > 0 || !r.Exact {
		t.Errorf("tp=4 of 4 groups: %q, exact %v", r.Notes, r.Exact)
	}
}

// 7e16 bytes of all ranks are counted: the shares add up.
func TestManyBytes(t *testing.T) {
	c := config(t, "llama2-13b", "dp=1024,tp=8,pp=8,zero=1")
	c.Sequences = 300000
	r, sum := report(t, c), int64(0)
	for _, k := range r.Ranks {
		sum += int64(k.Count) * k.Memory.Total
	}
	if r.Bytes != sum || r.Bytes < 7e16 {
		t.Errorf("%d bytes, those of the ranks are %d: want at least 7e16", r.Bytes, sum)
	}
}

// A report has one figure of idle time and one meaning of live.
func TestOneIdleFigureAndOneLive(t *testing.T) {
	for _, x := range []struct{ plan, idle, live string }{
		{"dp=8,pp=2,schedule=interleaved,virtual=2", "idle: 0.5000 of the time", "by stage [2 2]"},
		{"pp=4,schedule=interleaved,virtual=2,microbatches=16", "idle: 0.0857 of the time", "by stage [11 9 7 5]"},
		{"pp=4,dp=8", "idle: 0.7500 of the time", "by stage [1 1 1 1]"},
	} {
		c := config(t, "nano", x.plan)
		c.Model.Layers = 8
		var b strings.Builder
		if err := report(t, c).Text(&b); err != nil {
			t.Fatal(err)
		}
		s := b.String()
		if !strings.Contains(s, x.idle) || strings.Count(s, "idle") != 1 {
			t.Errorf("%s: want %q and no other word of idle time in\n%s", x.plan, x.idle, s)
		}
		if !strings.Contains(s, x.live) || len(regexp.MustCompile(`\blive\b`).FindAllString(s, -1)) != 1 {
			t.Errorf("%s: want %q once in\n%s", x.plan, x.live, s)
		}
	}
}

func TestBytesStandBesideGiB(t *testing.T) {
	c := config(t, "llama3-8b", "dp=8,tp=8,zero=1")
	c.Sequences = 64
	r := report(t, c)
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"total: from ", "state: from ", "all ranks together: ", "recomputation of blocks: "} {
		i := strings.Index(b.String(), line)
		if i < 0 || !strings.Contains(strings.SplitN(b.String()[i:], "\n", 2)[0], " GiB)") {
			t.Errorf("no GiB in the line %q of\n%s", line, b.String())
		}
	}
}

// The estimates, by another sum: one rank has nothing but its buffers, and a
// model with a block less has the activations of a block less.
func TestEstimates(t *testing.T) {
	one := func(layers int, text string) (dryrun.Memory, dryrun.Estimates, spec.Config) {
		c := config(t, "nano", text)
		c.Model.Layers = layers
		r := report(t, c)
		if len(r.Ranks) != 1 {
			t.Fatalf("%s: %d kinds of ranks", text, len(r.Ranks))
		}
		return r.Ranks[0].Memory, r.Estimates, c
	}
	for _, text := range []string{"", "microbatches=16", "dp=8"} {
		m, e, c := one(4, text)
		less, _, _ := one(3, text)
		want := m.Moments + m.Work + (m.Weights+m.Gradients)/2 + m.Weights + m.Activations/2
		if e.BF16 != want {
			t.Errorf("%s: bf16 %d, want %d", text, e.BF16, want)
		}
		block := m.Activations - less.Activations
		seqs := c.Plan
		if err := seqs.Validate(c.Model, c.Sequences); err != nil {
			t.Fatal(err)
		}
		input := 4 * int64(seqs.MaxSequences(c.Model, c.Sequences)*c.Model.SeqLen*c.Model.Hidden)
		again := m.Activations - 3*block + 4*input // one block whole, four inputs
		if got := m.Total - m.Activations + again; e.Recompute != got || e.Recompute >= m.Total {
			t.Errorf("%s: recomputation %d, want %d, less than %d", text, e.Recompute, got, m.Total)
		}
		if got := want - m.Activations/2 + again/2; e.Both != got {
			t.Errorf("%s: both %d, want %d", text, e.Both, got)
		}
	}
}

// What a program reads has the same words.
func TestJSONHasOneIdleShareAndLive(t *testing.T) {
	b, err := json.Marshal(report(t, config(t, "nano", "pp=2")))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"idle_share":`, `"live":`, `"buffers":`, `"estimates":`} {
		if !strings.Contains(string(b), key) {
			t.Errorf("no %s", key)
		}
	}
	for _, key := range []string{"overhead", "weighted", "peak_live"} {
		if strings.Contains(string(b), key) {
			t.Errorf("a second figure: %s", key)
		}
	}
}
