package combinations_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// campaign runs every variant under every plan, for minutes.
var campaign = flag.Bool("campaign", false, "run every variant under every plan")

// answer trains a configuration under a plan and gives the state after its last
// step.
func answer(t *testing.T, cfg spec.Config, text string) (spec.Fingerprint, error) {
	t.Helper()
	var err error
	if cfg.Plan, err = plan.Parse(text); err != nil {
		return spec.Fingerprint{}, err
	}
	out, err := launch.Local(t.Context(), cfg, data.Default(),
		launch.Parts{Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }})
	if err != nil {
		return spec.Fingerprint{}, err
	}
	return spec.FingerprintAt(out.History, cfg.Steps-1)
}

// sameAnswer prints the table of plans with their fingerprints and fails where
// one is not what is wanted.
func sameAnswer(t *testing.T, cfg spec.Config, want spec.Fingerprint, plans []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, text := range plans {
		got, err := answer(t, cfg, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		t.Logf("%-66s %v", text, got)
		if got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if seen[text] {
			t.Errorf("%s is in the list twice", text)
		}
		seen[text] = true
	}
}

func preset(t *testing.T, name string, steps int) spec.Config {
	t.Helper()
	cfg, err := spec.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Steps, cfg.Recording.Digests = steps, true
	return cfg
}

// TestOneAnswer: all plans of a fixture give the golden fingerprint.
func TestOneAnswer(t *testing.T) {
	for i, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			file := []string{"nano-adamw-untied", "odd-adamw-tied"}[i] // the fixtures as they are
			g, err := golden.LoadFingerprints(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg := preset(t, f.name, 2)
			if err := g.Comparable(golden.Task(cfg), kernels.Arithmetic, data.Default().Hash()); err != nil {
				t.Fatal(err)
			}
			sameAnswer(t, cfg, g.Steps[cfg.Steps-1], f.plans())
		})
	}
}

// The list has what it should: at least 40 products on nano, none of more than
// 16 ranks, all valid and exact.
func TestPlansOfTheTable(t *testing.T) {
	for _, f := range fixtures() {
		cfg := preset(t, f.name, 1)
		for _, text := range f.plans() {
			p, err := plan.Parse(text)
			if err == nil {
				err = p.Validate(cfg.Model, cfg.Sequences)
			}
			if err != nil || !p.Exact(cfg.Model) || p.World() > 16 {
				t.Errorf("%s: %v, exact %v, %d ranks", text, err, p.Exact(cfg.Model), p.World())
			}
		}
	}
	if n := len(products(8)); n < 40 {
		t.Errorf("%d products", n)
	}
	all := strings.Join(products(8), " ")
	for _, want := range []string{"dp=2,tp=2,pp=2,zero=1", "dp=2,tp=2,pp=2,zero=2", "dp=2,tp=2,pp=2,zero=3", "dp=2,tp=4,pp=2", "dp=4,tp=4",
		"schedule=interleaved", "schedule=gpipe", "shard=tensors", "shard=balanced", "shard=round-robin", "vocab=parallel"} {
		if !strings.Contains(all, want) {
			t.Errorf("no product has %s", want)
		}
	}
}

// variant is what a fixture may be trained with.
type variant struct {
	fixture, sgd, tied, clip, vocab bool // fixture: odd rather than nano
}

func (v variant) String() string {
	return fmt.Sprintf("odd=%v sgd=%v tied=%v clip=%v vocab=%v", v.fixture, v.sgd, v.tied, v.clip, v.vocab)
}

func (v variant) config(t *testing.T) (spec.Config, fixture) {
	f := fixtures()[0]
	if v.fixture {
		f = fixtures()[1]
	}
	cfg := preset(t, f.name, 3)
	cfg.Model.Tied = v.tied
	if v.sgd {
		cfg.Optimizer = optim.Config{Name: "sgd", LR: 0.1, Decay: 0.01, Clip: cfg.Optimizer.Clip}
	}
	if !v.clip {
		cfg.Optimizer.Clip = 0
	}
	return cfg, f
}

// under is a plan with the variant's cut of the vocabulary, where it can have one.
func (v variant) under(text string) string {
	text = strings.Replace(text, ",vocab=parallel", "", 1)
	if v.vocab && strings.Contains(text, "tp=") && !strings.Contains(text, "tp=1") {
		text += ",vocab=parallel"
	}
	return text
}

// pairwise are variants among which every two settings of two options occur
// together.
func pairwise() []variant {
	return []variant{
		{false, false, false, false, false},
		{false, true, true, true, true},
		{true, false, true, true, false},
		{true, true, false, true, false},
		{true, true, true, false, true},
		{true, false, false, true, true},
		{false, true, true, false, false},
	}
}

func TestPairwiseCovers(t *testing.T) {
	type pair struct {
		i, j int
		a, b bool
	}
	seen := map[pair]bool{}
	for _, v := range pairwise() {
		x := []bool{v.fixture, v.sgd, v.tied, v.clip, v.vocab}
		for i := range x {
			for j := range i {
				seen[pair{i, j, x[i], x[j]}] = true
			}
		}
	}
	if len(seen) != 10*4 {
		t.Errorf("%d of 40 pairs of settings", len(seen))
	}
}

// TestVariants: the other optimizer, tied and untied heads, without clipping,
// with the vocabulary split: one fingerprint for all plans.
func TestVariants(t *testing.T) {
	variants, plans := pairwise(), func(fixture) []string {
		return []string{"dp=2,tp=2,pp=2,zero=1", "dp=2,tp=2,pp=2,zero=2,schedule=gpipe", "dp=4,tp=4,zero=3", "tp=2,pp=4", "dp=4,pp=2,zero=3,shard=tensors,schedule=interleaved,virtual=2", "dp=4,pp=3,zero=1,shard=balanced"}
	}
	if *campaign {
		variants, plans = nil, fixture.plans
		for bits := range 1 << 5 {
			on := func(i int) bool { return bits>>i&1 == 1 }
			variants = append(variants, variant{on(0), on(1), on(2), on(3), on(4)})
		}
	}
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			cfg, f := v.config(t)
			want, err := answer(t, cfg, "")
			if err != nil {
				t.Fatal(err)
			}
			var list []string
			for _, text := range plans(f) {
				if u := v.under(text); !slices.Contains(list, u) {
					list = append(list, u)
				}
			}
			sameAnswer(t, cfg, want, list)
		})
	}
}

// Where the number of data-parallel ranks does not divide the groups, ZeRO still
// gives the bits of plain data parallelism of the same size, whatever else the
// plan cuts.
func TestStagesAgreeOutsideTheGroups(t *testing.T) {
	for _, dp := range []int{3, 5} {
		for _, f := range fixtures() {
			t.Run(fmt.Sprintf("%s dp=%d", f.name, dp), func(t *testing.T) {
				t.Parallel()
				cfg := preset(t, f.name, 2)
				plain := fmt.Sprintf("dp=%d", dp)
				want, err := answer(t, cfg, plain)
				if err != nil {
					t.Fatal(err)
				}
				one, err := answer(t, cfg, "")
				if err != nil || one == want {
					t.Errorf("%v; one worker has the answer of %s: the test shows nothing", err, plain)
				}
				var list []string
				for _, rest := range []string{"zero=1", "zero=2", "zero=3", "zero=1,shard=balanced", "zero=3,shard=tensors", "tp=2,zero=2", "pp=3,zero=3"} {
					list = append(list, plain+","+rest)
				}
				sameAnswer(t, cfg, want, list)
			})
		}
	}
}
