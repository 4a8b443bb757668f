package dryrun_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/null"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

func config(t *testing.T, name, text string) spec.Config {
	t.Helper()
	c, err := spec.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	if c.Plan, err = plan.Parse(text); err != nil {
		t.Fatal(err)
	}
	c.Steps = 2
	return c
}

func report(t *testing.T, c spec.Config) *dryrun.Report {
	t.Helper()
	r, err := dryrun.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// plans are those that a run is measured under: every stage and form of ZeRO,
// every axis, schedules with more and with fewer micro-batches than stages.
func plans() map[string][]string {
	return map[string][]string{
		"nano": {
			"", "dp=1,microbatches=16", "dp=2", "dp=3", "dp=8,microbatches=3", "dp=2,zero=1", "dp=5,zero=1", "dp=8,zero=1", "dp=4,zero=2", "dp=4,zero=2,microbatches=6",
			"dp=8,zero=3", "dp=2,zero=3,microbatches=8", "dp=3,zero=3", "dp=1,zero=2", "dp=1,zero=3",
			"dp=4,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous", "dp=8,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors", "dp=8,zero=3,shard=tensors",
			"tp=2", "tp=4,vocab=parallel", "pp=2", "pp=3", "pp=4,microbatches=16", "pp=4,schedule=gpipe", "pp=2,schedule=interleaved,virtual=2",
			"dp=8,pp=4", "dp=2,tp=2,pp=2,zero=1", "dp=2,tp=2,pp=2,zero=2", "dp=2,tp=2,pp=2,zero=3,vocab=parallel", "dp=4,pp=2,zero=3,schedule=interleaved,virtual=2",
			"dp=2,tp=4,pp=2,zero=1,shard=balanced", "dp=2,pp=4,zero=3,shard=tensors", "dp=16,tp=4,pp=2,zero=3",
		},
		"odd": {
			"", "dp=2,zero=1", "dp=3,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=2,zero=3,microbatches=4", "dp=4,zero=3,shard=tensors", "dp=4,zero=1,shard=contiguous",
			"tp=4", "tp=2,vocab=parallel", "pp=4", "pp=3,schedule=gpipe,microbatches=8", "dp=2,pp=2,zero=1", "dp=2,pp=2,zero=1,shard=balanced", "dp=4,pp=2,zero=2",
			"dp=2,tp=4,pp=2,zero=3,vocab=parallel", "dp=4,pp=2,zero=3,schedule=interleaved,virtual=2,microbatches=2", "dp=2,pp=2,zero=3,shard=tensors", "dp=13,zero=3,pp=2",
		},
	}
}

// Every figure is what a run allocates and sends, on every rank, to the byte.
func TestFiguresAreThoseOfARun(t *testing.T) {
	for name, texts := range plans() {
		for _, text := range texts {
			for _, optimizer := range []string{"adamw", "sgd"} {
				if optimizer == "sgd" && !strings.Contains(text, "dp=2,") {
					continue // it has one moment less: shown on a few plans
				}
				c := config(t, name, text)
				c.Optimizer.Name = optimizer
				dry(t, c)
			}
		}
	}
}

// dry measures a run on a backend that only counts.
func dry(t *testing.T, c spec.Config) {
	t.Helper()
	backends := make([]*null.Backend, c.Plan.World())
	parts := launch.Parts{Backend: func(r int) (kernels.Backend, error) {
		backends[r] = null.New()
		return backends[r], nil
	}}
	measure(t, c, parts, func(rank int) int64 { return backends[rank].Counts().Peak })
}

// The same where digests and changes are recorded.
func TestFiguresWithEvidence(t *testing.T) {
	for _, text := range []string{"", "dp=2", "dp=3,zero=1", "dp=2,zero=2", "dp=4,zero=3,microbatches=2", "tp=2", "pp=2", "dp=4,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors"} {
		c := config(t, "nano", text)
		c.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true}
		dry(t, c)
	}
}

// A run fits as many bytes as its ranks have together, and no less.
func TestFits(t *testing.T) {
	c := config(t, "nano", "dp=2,pp=2,zero=1")
	sum, one := int64(0), int64(0) // of all ranks, of the last
	for _, k := range report(t, c).Ranks {
		sum += int64(len(k.IDs)) * k.Memory.Total
		if slices.Contains(k.IDs, 3) {
			one = k.Memory.Total
		}
	}
	for bytes, fits := range map[int64]bool{sum: true, sum - 1: false, 1: false, 0: true} {
		need, err := dryrun.Fits(c, launch.Here, bytes)
		if (err == nil) != fits || bytes > 0 && need != sum {
			t.Errorf("%d of %d bytes: need %d, %v", bytes, sum, need, err)
		}
	}
	if _, err := dryrun.Fits(c, launch.Here, 1); err == nil || !strings.Contains(err.Error(), "nano on dp=2,pp=2,zero=1") || !strings.Contains(err.Error(), "4 ranks in one process need ") {
		t.Errorf("error %v", err)
	}
	last := func(size int) []int { return launch.Here(size)[size-1:] } // the others are on other hosts
	if need, err := dryrun.Fits(c, last, one); err != nil || need != one || one == 0 || one >= sum {
		t.Errorf("the last rank alone: %d of %d bytes, %v", need, one, err)
	}
	if _, err := dryrun.Fits(c, last, one-1); err == nil || !strings.Contains(err.Error(), "1 ranks in one process need ") {
		t.Errorf("the last rank alone: error %v", err)
	}
}

// The same on a backend that computes: it counts its allocations itself.
func TestFiguresAreThoseOfARunThatComputes(t *testing.T) {
	for _, c := range []spec.Config{config(t, "nano", "dp=2,tp=2,zero=2,microbatches=8"), config(t, "odd", "dp=2,tp=2,pp=2,zero=3,vocab=parallel")} {
		backends := make([]*counting, c.Plan.World())
		parts := launch.Parts{Backend: func(r int) (kernels.Backend, error) {
			backends[r] = &counting{Backend: ref.New[float32]()}
			return backends[r], nil
		}}
		measure(t, c, parts, func(rank int) int64 { return backends[rank].peak })
	}
}

// counting is a backend of one rank that counts its live bytes. One goroutine
// allocates at a time: the rank's own.
type counting struct {
	kernels.Backend
	live, peak int64
}

func (c *counting) Alloc(n int) (kernels.Buffer, error) {
	c.live += 4 * int64(n)
	c.peak = max(c.peak, c.live)
	return c.Backend.Alloc(n)
}

func (c *counting) Free(b kernels.Buffer) {
	c.live -= 4 * int64(b.Len())
	c.Backend.Free(b)
}

// measure trains two steps and compares the second with the report.
func measure(t *testing.T, c spec.Config, parts launch.Parts, peak func(rank int) int64) {
	t.Helper()
	r := report(t, c)
	out, err := launch.Local(t.Context(), c, data.Default(), parts)
	if err != nil {
		t.Fatalf("%s %s: %v", c.Model.Name, c.Plan, err)
	}
	seen := 0
	for _, k := range r.Ranks {
		for _, id := range k.IDs {
			seen++
			want := figures(k)
			want["allocated"] = k.Memory.Total
			got := measured(out.History.Ranks[id])
			got["allocated"] = peak(id)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s %s %s, rank %d (-dry run +run):\n%s", c.Model.Name, c.Plan, c.Optimizer.Name, id, d)
				return
			}
		}
	}
	if seen != c.Plan.World() {
		t.Errorf("%s %s: the report has %d ranks", c.Model.Name, c.Plan, seen)
	}
	want, got := tables(r, out.History)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s %s (-dry run +run):\n%s", c.Model.Name, c.Plan, d)
	}
}

// figures are what a rank's memory events and collectives must say.
func figures(k dryrun.Ranks) map[string]int64 {
	m := k.Memory
	full := m.FullGradient // kept between steps only where a worker has several micro-batches
	out := map[string]int64{"weights": m.Weights, "weights peak": m.Weights + m.Gathered, "moments": m.Moments, "moments peak": m.Moments,
		"grads peak": m.Gradients + full, "state peak": m.State, "activations": m.Activations, "activations peak": m.Activations, "other peak": m.Work + m.TiedGradient}
	for g, n := range k.Sent {
		out["sent "+string(g)] = n
	}
	return out
}

func measured(events []trace.Event) map[string]int64 {
	out := map[string]int64{}
	for _, e := range events {
		switch {
		case e.Step != 1:
		case e.Kind == trace.KindMemory:
			if e.What != "grads" && e.What != "state" && e.What != "other" { // what these have at the end of a step passes away
				out[e.What] = e.Count
			}
			out[e.What+" peak"] = e.Bytes
		case e.Kind == trace.KindComm && e.Bytes > 0:
			out["sent "+string(e.Group)] += e.Bytes
		}
	}
	return out
}

// tables are the times and bytes by group and operation.
func tables(r *dryrun.Report, h *trace.History) (want, got map[string][2]int64) {
	want, got = map[string][2]int64{}, map[string][2]int64{}
	add := func(to map[string][2]int64, group names.Axis, op string, times, bytes int64) {
		x := to[string(group)+" "+op]
		to[string(group)+" "+op] = [2]int64{x[0] + times, x[1] + bytes}
	}
	for _, x := range r.Traffic {
		add(want, x.Group, x.Op, x.Times, x.Bytes)
	}
	for e := range h.All {
		if e.Kind != trace.KindComm || e.Step != 1 || names.WireBytes(e.Op, 1, 2) == 0 || len(e.Ranks) == 1 {
			continue
		}
		times := int64(0)
		if e.Op == names.OpSend || e.Ranks[0] == e.Rank {
			times = 1
		}
		add(got, e.Group, e.Op, times, e.Bytes)
	}
	return want, got
}

// Plans of thousands of ranks take seconds, and every rank is in the report.
func TestManyRanks(t *testing.T) {
	for _, x := range []struct {
		text      string
		sequences int
	}{{"dp=8,tp=8,pp=8,zero=3", 16}, {"dp=64,tp=8,pp=8,zero=3,microbatches=32", 4096}, {"dp=32,tp=8,pp=16,zero=1,schedule=interleaved,virtual=2,microbatches=64,vocab=parallel", 2048}} {
		begun := time.Now()
		c := config(t, "llama2-7b", x.text)
		c.Sequences = x.sequences
		r := report(t, c)
		n, sum := 0, int64(0)
		for _, k := range r.Ranks {
			n += len(k.IDs)
			sum += int64(len(k.IDs)) * k.Memory.Moments
		}
		if n != c.Plan.World() || r.Parameters != 6738415616 {
			t.Errorf("%s: %d ranks, %d parameters", x.text, n, r.Parameters)
		}
		// Two moments of 4 bytes for every parameter, replicated ones (norms, and a
		// vocabulary that is not split) on each of the tensor-parallel ranks.
		replicated := int64(65 * 4096)
		if c.Plan.Vocab != plan.VocabParallel {
			replicated += 2 * 32000 * 4096
		}
		if want := 8 * (r.Parameters + 7*replicated); sum != want {
			t.Errorf("%s: %d bytes of moments on all ranks, want %d", x.text, sum, want)
		}
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("%s: took %v", x.text, d)
		}
	}
}

func TestRefusals(t *testing.T) {
	huge := config(t, "nano", "")
	huge.Model.Vocab, huge.Model.Hidden, huge.Model.Layers = 1<<24, 1<<24, 1<<10
	deep := config(t, "nano", "")
	deep.Model.Layers = dryrun.MaxLayers + 1
	wide := config(t, "nano", "tp=3")
	name := config(t, "nano", "")
	name.Optimizer = optim.Config{Name: "adam"}
	sum := config(t, "llama3-8b", "dp=1048576,comm=star")
	sum.Sequences, sum.Model.SeqLen = 1<<20, 1<<17
	for want, c := range map[string]spec.Config{"more bytes than a 64-bit integer counts": sum, "a dry run counts up to": huge, "layers=65537": deep, "tp=3: must divide": wide, `optimizer "adam"`: name} {
		if _, err := dryrun.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	c := config(t, "odd", "dp=2,pp=2,zero=1,microbatches=2")
	if err := report(t, c).Text(&b); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/odd.txt")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for name, texts := range plans() {
		for _, text := range texts {
			var b strings.Builder
			if err := report(t, config(t, name, text)).Text(&b); err != nil {
				t.Fatal(err)
			}
			if s := b.String(); strings.Contains(s, "%!") || !strings.Contains(s, "Bytes per rank") {
				t.Errorf("%s %s:\n%s", name, text, s)
			}
		}
	}
}

func TestDrawing(t *testing.T) {
	for text, want := range map[string]string{
		"pp=2,schedule=gpipe": "stage 0 F0  F1  F2  F3  F4  F5  F6  F7  .   .   B0  B1  B2  B3  B4  B5  B6  B7\n",
		"pp=2,dp=4":           "stage 0 F0  F1  .   B0  .   B1\nstage 1 .   F0  B0  F1  B1\n",
		"pp=2,dp=4,schedule=interleaved,virtual=2": "stage 0 F0a F1a F0b F1b .   B0b .",
	} {
		if got := report(t, config(t, "nano", text)).Schedule.Drawing; !strings.HasPrefix(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
	if got := report(t, config(t, "nano", "pp=4,microbatches=64")).Schedule.Drawing; got != "" {
		t.Errorf("a drawing of many slots:\n%s", got)
	}
}

// The idle share of the drawing's slots is the schedule's.
func TestDrawingKeepsTime(t *testing.T) {
	for _, text := range []string{"pp=2", "pp=3", "pp=4", "pp=2,schedule=gpipe", "pp=2,schedule=interleaved,virtual=2"} {
		s := report(t, config(t, "nano", text)).Schedule
		width, busy := 0, 0
		lines := strings.Split(strings.TrimSpace(s.Drawing), "\n")
		for _, line := range lines {
			cells := strings.Fields(line)[2:]
			width = max(width, len(cells))
			for _, cell := range cells {
				busy += map[bool]int{true: 1}[cell != "."]
			}
		}
		idle := 1 - float64(busy)/float64(width*len(lines))
		if diff := idle - s.IdleShare; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("%s: drawn idle share %v, simulated %v\n%s", text, idle, s.IdleShare, s.Drawing)
		}
	}
}

// Units of a stage have the lengths of its weights, and shards cover them.
func TestUnitsCoverTheStages(t *testing.T) {
	for name, texts := range plans() {
		for _, text := range texts {
			r := report(t, config(t, name, text))
			layers := map[int]bool{}
			for i, s := range r.Stages {
				for _, l := range s.Layers {
					for x := l[0]; x < l[1]; x++ {
						layers[x] = true
					}
				}
				for _, u := range s.Units {
					if n := len(u.Bounds); n > 0 && (u.Bounds[0] != 0 || u.Bounds[n-1] != u.Elements) {
						t.Errorf("%s %s, stage %d: %s of %d elements has bounds %v", name, text, i, u.Name, u.Elements, u.Bounds)
					}
				}
			}
			if len(layers) != 4 {
				t.Errorf("%s %s: the stages have layers %v", name, text, fmt.Sprint(maps.Keys(layers)))
			}
		}
	}
}
