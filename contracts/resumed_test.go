package contracts

import (
	"path/filepath"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// resumes records a run that goes on from the checkpoint of another plan's.
func resumes(t *testing.T, before, after string, start bool, backend func(int) (kernels.Backend, error)) string {
	t.Helper()
	root := t.TempDir()
	cfg := on(t, "nano", before, false)
	cfg.Model.SeqLen, cfg.Steps = 3, 2
	cfg.Recording = spec.Recording{KeepGoing: true}
	stored := launch.Parts{Backend: good}
	stored.Checkpoints = train.Checkpoints{Dir: filepath.Join(root, "state")}
	if _, err := launch.Local(t.Context(), cfg, data.Default(), stored); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(filepath.Join(root, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next := on(t, "nano", after, false)
	cfg.Plan, cfg.Steps = next.Plan, 4
	cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true, Start: start, Taps: cfg.Plan.TP > 1, Capture: !cfg.Plan.Exact(cfg.Model)}
	parts := launch.Parts{Backend: backend}
	parts.Checkpoints.Resume = c
	out, err := launch.Local(t.Context(), cfg, data.Default(), parts)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "run")
	if err := out.History.Save(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestResumedRunsAreJudgedFromWhereTheyGoOn: whatever plan stored the state, a sound
// run is held by all contracts, a broken one violated; without the elements of the
// state nothing is known, and that is said.
func TestResumedRunsAreJudgedFromWhereTheyGoOn(t *testing.T) {
	for _, x := range []struct {
		before, after string
		start         bool
		backend       func(int) (kernels.Backend, error)
		want          contract.Verdict
	}{
		{"dp=3", "dp=2", true, good, contract.Held},
		{"dp=3", "dp=2", true, broken, contract.Violated},
		{"dp=3", "dp=2", false, good, contract.Inconclusive},
		{"dp=4", "dp=2", true, good, contract.Held},
		{"dp=1", "dp=3", true, good, contract.Held},
		{"dp=3", "dp=2,zero=3", true, good, contract.Held},
		{"dp=3", "dp=2,zero=1", true, good, contract.Held},
		{"dp=3", "tp=2", true, good, contract.Held},
		{"tp=2", "pp=2", true, good, contract.Held},
		{"dp=2", "dp=2,tp=2,pp=2", true, good, contract.Held},
		{"pp=2", "dp=2,tp=2,pp=2", true, broken, contract.Violated},
	} {
		t.Run(x.before+" then "+x.after, func(t *testing.T) {
			dir := resumes(t, x.before, x.after, x.start, x.backend)
			r, err := JudgeHistories(t.Context(), []string{dir}, All(), Options{Parts: launch.Parts{Backend: good}, Oracle: oracle.NewOracle(defaultText)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != x.want {
				t.Errorf("start %v: %s, want %s; %q", x.start, r.Verdict, x.want, r.Notes)
				lament(t, r)
			}
			if !x.start && !has(r.Notes, "evidence.start") {
				t.Errorf("it is not said what lacks: %q", r.Notes)
			}
		})
	}
}

// TestOneClauseSpeaksOfNaN: a run whose weights become NaN violates the clause that
// says so and no other, however it was cut; no clause that compares is held by it.
func TestOneClauseSpeaksOfNaN(t *testing.T) {
	for _, plan := range []string{"dp=2", "dp=2,zero=3", "dp=2,tp=2,pp=2", "tp=2", "pp=2", "dp=1"} {
		cfg := on(t, "nano", plan, false)
		cfg.Model.SeqLen, cfg.Steps, cfg.Optimizer.LR, cfg.Optimizer.Clip, cfg.Optimizer.Warmup = 3, 4, 1e6, 0, 0
		cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true, Taps: cfg.Plan.TP > 1}
		out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Backend: good})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := out.History.Save(dir); err != nil {
			t.Fatal(err)
		}
		lost, bad := false, 0
		for e := range out.History.All {
			lost = lost || e.Kind == trace.KindDigest && e.What == trace.Grad && e.Digest.NonFinite > 0
		}
		r := judged(t, All(), dir)
		for _, c := range r.Contracts {
			for _, cl := range c.Clauses {
				if cl.Verdict == contract.Violated {
					bad++
				}
				if cl.Verdict == contract.Violated && cl.ID != "C-DDP-001.7" {
					t.Errorf("%s: %s is violated: %v", plan, cl.ID, cl.Findings[0])
				}
			}
		}
		if replicas := cfg.Plan.DP > 1; !lost || r.Verdict == contract.Held || (bad == 1) != replicas {
			t.Errorf("%s: %s, %d clauses violated; some gradient is not finite: %v", plan, r.Verdict, bad, lost)
		}
		if noted := has(r.Notes, dir+": values that are not finite from step "); noted == (cfg.Plan.DP > 1) {
			t.Errorf("%s: notes %q", plan, r.Notes)
		}
	}
}

// TestSharedMemoryIsSeenUnderEveryPlan: ranks whose buffers lie in one memory agree
// whatever is sent, so no plan is held with them.
func TestSharedMemoryIsSeenUnderEveryPlan(t *testing.T) {
	for _, plan := range []string{"dp=2", "dp=2,zero=1", "dp=2,zero=3", "tp=2", "pp=2", "dp=2,tp=2,pp=2"} {
		cfg := on(t, "nano", plan, false)
		cfg.Model.SeqLen, cfg.Steps = 3, 1
		cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true, Taps: cfg.Plan.TP > 1}
		out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Backend: good})
		if err != nil {
			t.Fatal(err)
		}
		first := map[string]*kernels.Span{}
		for rank := range cfg.Plan.World() {
			for i, e := range out.History.Ranks[rank] {
				if e.Kind != trace.KindSpan {
					continue
				}
				if first[e.What] == nil {
					first[e.What] = e.Span
				}
				out.History.Ranks[rank][i].Span = first[e.What]
			}
		}
		dir := t.TempDir()
		if err := out.History.Save(dir); err != nil {
			t.Fatal(err)
		}
		if r := judged(t, All(), dir); r.Verdict != contract.Violated {
			t.Errorf("%s: %s with all ranks' buffers in one memory", plan, r.Verdict)
		}
	}
}

// lament logs what is not held.
func lament(t *testing.T, r *report.Report) {
	for _, c := range r.Contracts {
		for _, cl := range c.Clauses {
			if cl.Verdict != contract.Held {
				t.Logf("%s is %s: %d of %d, %q, %v", cl.ID, cl.Verdict, cl.Saw, cl.Expected, cl.Doubts, cl.Findings)
			}
		}
	}
}
