package contracts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// scaled is a backend whose gates are off by a factor, on every rank of every run:
// no comparison of its runs with each other shows it.
type scaled struct{ kernels.Backend }

func (b scaled) SwiGLU(h, z, u kernels.Tensor) {
	b.Backend.SwiGLU(h, z, u)
	b.Scale(h, h, 1.001)
}

func good(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }

func broken(int) (kernels.Backend, error) {
	b, err := good(0)
	return scaled{b}, err
}

// run is a training run to be recorded.
type run struct {
	plan    string
	seed    uint64
	backend func(int) (kernels.Backend, error)
	header  func(*trace.Header) // changes it; nil for nothing
}

// saves records a run in a directory, once.
func (r run) saves(t *testing.T, dir string) string {
	t.Helper()
	cfg := on(t, "nano", r.plan, false)
	cfg.Model.SeqLen, cfg.Steps, cfg.Seed = 3, 1, r.seed
	cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true}
	out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Backend: r.backend})
	if err != nil {
		t.Fatal(err)
	}
	if r.header != nil {
		r.header(&out.History.Header)
	}
	if err := out.History.Save(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func tagged(as string) func(*trace.Header) { return func(h *trace.Header) { h.Case = as } }

// some are contracts that judge runs of several ranks and of one.
func some(t *testing.T) []*suite.Suite {
	t.Helper()
	var out []*suite.Suite
	for _, id := range []string{"C-DDP-001", "C-NORM-001", "C-DATA-001"} {
		c, err := Find(id)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func defaultText(string) (data.Text, error) { return data.Default(), nil }

// judged judges directories with a sound backend.
func judged(t testing.TB, cs []*suite.Suite, dirs ...string) *report.Report {
	t.Helper()
	r, err := JudgeHistories(t.Context(), dirs, cs, Options{Parts: launch.Parts{Backend: good}, Oracle: oracle.NewOracle(defaultText)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMoreEvidenceNeverWeakensAVerdict adds other recorded runs to one that is
// violated: the machine's own controls, sound runs, runs of other tasks, of other
// contracts, its copies. It stays violated.
func TestMoreEvidenceNeverWeakensAVerdict(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	violated := []string{
		run{plan: "dp=4", seed: 1, backend: broken}.saves(t, at("broken dp=4")),
		run{plan: "dp=2", seed: 1, backend: broken, header: tagged("C-DDP-001/nano dp=2/test")}.saves(t, at("saved/broken")),
		run{plan: "dp=1", seed: 5, backend: broken}.saves(t, at("broken dp=1 of another seed")),
	}
	others := []string{
		run{plan: "dp=1", seed: 1, backend: broken}.saves(t, at("its own dp=1")),
		run{plan: "dp=1", seed: 1, backend: broken, header: tagged("C-DDP-001/nano dp=2/control")}.saves(t, at("saved/its own control")),
		run{plan: "dp=2", seed: 1, backend: good, header: tagged("C-DDP-001/nano dp=2/test")}.saves(t, at("saved/sound")),
		run{plan: "dp=2", seed: 1, backend: good, header: tagged("C-DDP-001/nano dp=2/test")}.saves(t, at("saved too/sound")),
		run{plan: "dp=1", seed: 1, backend: good}.saves(t, at("a sound dp=1")),
		run{plan: "dp=4", seed: 1, backend: good}.saves(t, at("a sound dp=4")),
		run{plan: "dp=1", seed: 5, backend: good}.saves(t, at("a sound dp=1 of another seed")),
		run{plan: "dp=1", seed: 5, backend: broken}.saves(t, at("a copy")),
		run{plan: "dp=2", seed: 1, backend: good, header: tagged("C-FOO-001/x/test")}.saves(t, at("of an unknown contract")),
		run{plan: "dp=2", seed: 1, backend: good, header: tagged("C-TP-001/x/test")}.saves(t, at("of a contract that is not asked for")),
	}
	for i, dir := range violated {
		cs := some(t)[:1]
		if i == len(violated)-1 {
			cs = some(t)[1:2] // a single worker has no replicas
		}
		if r := judged(t, cs, dir); r.Verdict != contract.Violated {
			t.Fatalf("%s alone is %s", dir, r.Verdict)
		}
		for _, other := range others {
			if r := judged(t, cs, dir, other); r.Verdict != contract.Violated {
				t.Errorf("%s beside %s is %s", dir, other, r.Verdict)
			}
		}
		if r := judged(t, cs, root); r.Verdict != contract.Violated {
			t.Errorf("%s beside all others is %s", dir, r.Verdict)
		}
	}
}

// TestEveryHistoryIsJudgedOrNamed: sound runs, of which one beside the others is
// nobody's evidence, are not held, and it is named.
func TestEveryHistoryIsJudgedOrNamed(t *testing.T) {
	root := t.TempDir()
	sound := run{plan: "dp=2", seed: 1, backend: good}.saves(t, filepath.Join(root, "sound"))
	saved := run{plan: "dp=2", seed: 1, backend: good, header: tagged("C-DDP-001/nano dp=2/test")}.saves(t, filepath.Join(root, "case/test"))
	cs := some(t)
	if r := judged(t, cs, sound, saved); r.Verdict != contract.Held {
		t.Fatalf("sound runs are %s: %v", r.Verdict, r)
	}
	for i, x := range []struct {
		header func(*trace.Header)
		want   string
		left   bool // of the report; else a doubt of the contract's
	}{
		{tagged("C-FOO-001/x/test"), `"C-FOO-001", which is none here`, true},
		{tagged("nothing that verify writes"), "which is none here", true},
		{tagged("C-DDP-001/nano dp=2/spare"), `the spare run of a case "nano dp=2"`, false},
		{tagged("C-DDP-001/elsewhere/again"), `the again run of a case "elsewhere"`, false},
		{func(h *trace.Header) { h.Spec = trace.Spec{Observed: []byte(`{"trainer":"other"}`)} }, "of another trainer", true},
	} {
		dir := run{plan: "dp=2", seed: 1, backend: good, header: x.header}.saves(t, filepath.Join(root, fmt.Sprint("odd one ", i)))
		r := judged(t, cs, sound, saved, dir)
		named := r.LeftOut
		if !x.left {
			named = r.Contracts[0].Clauses[0].Doubts
		}
		if r.Verdict != contract.Inconclusive || !has(named, x.want) || !has(named, dir) {
			t.Errorf("%s: %s, want inconclusive for %q; named %q", dir, r.Verdict, x.want, named)
		}
	}
}

// TestRecordedControlsMustBeConfirmed: what was recorded as a control is believed
// where golden has its bits, or one made here; else what it confirms is
// inconclusive, and what it contradicts violated.
func TestRecordedControlsMustBeConfirmed(t *testing.T) {
	ddp := some(t)[:1]
	for _, x := range []struct {
		name          string
		test, control func(int) (kernels.Backend, error)
		here          func(int) (kernels.Backend, error) // nil: none can be made
		want          contract.Verdict
	}{
		{"sound, made here", good, good, good, contract.Held},
		{"both broken alike, made here", broken, broken, good, contract.Violated},
		{"the control is broken, made here", good, broken, good, contract.Violated},
		{"sound, unconfirmed", good, good, nil, contract.Inconclusive},
		{"both broken alike, unconfirmed", broken, broken, nil, contract.Inconclusive},
		{"one of both is broken, unconfirmed", good, broken, nil, contract.Violated},
	} {
		root := t.TempDir()
		run{plan: "dp=4", seed: 1, backend: x.test}.saves(t, filepath.Join(root, "test"))
		run{plan: "dp=1", seed: 1, backend: x.control}.saves(t, filepath.Join(root, "control"))
		r, err := JudgeHistories(t.Context(), []string{root}, ddp, Options{Parts: launch.Parts{Backend: x.here}})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(r.Contracts[0].Clauses, func(c report.Clause) bool { return c.ID == "C-DDP-001.4" })
		if got := r.Contracts[0].Clauses[i]; got.Verdict != x.want {
			t.Errorf("%s: %s is %s, want %s: %q", x.name, got.ID, got.Verdict, x.want, got.Doubts)
		}
		if doubt := has(r.Contracts[0].Clauses[i].Doubts, "nothing confirms this control"); doubt != (x.here == nil) {
			t.Errorf("%s: unconfirmed %v: %q", x.name, doubt, r.Contracts[0].Clauses[i].Doubts)
		}
	}
}

// TestLinksAreFollowed: a run behind a link is judged, once, wherever the link is.
func TestLinksAreFollowed(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "runs")
	run{plan: "dp=2", seed: 1, backend: good}.saves(t, filepath.Join(dir, "sound"))
	run{plan: "dp=4", seed: 1, backend: broken}.saves(t, filepath.Join(root, "elsewhere"))
	for _, to := range []string{"../elsewhere", "."} { // the second leads back
		if err := os.Symlink(to, filepath.Join(dir, "link"+strings.Trim(to, "./"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("runs", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, filepath.Join(root, "link")} {
		r := judged(t, some(t)[:1], at)
		if r.Verdict != contract.Violated || len(r.Environment.Plans) != 2 {
			t.Errorf("%s: %s, plans %q", at, r.Verdict, r.Environment.Plans)
		}
	}
	if err := os.Symlink("gone", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if _, err := JudgeHistories(t.Context(), []string{dir}, some(t)[:1], Options{Parts: launch.Parts{Backend: good}}); err == nil || !strings.Contains(err.Error(), "dangling") {
		t.Errorf("a link to nothing: %v", err)
	}
}
