package combinations_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/ref"
	"github.com/lockstep-ml/lockstep/property/gen"
)

var (
	correctRuns = flag.Int("runs", 0, "random correct runs of the campaign: 0 is 2000 with -campaign, else 12")
	flippedRuns = flag.Int("flips", 0, "random bit flips of the campaign: 0 is 1000 with -campaign, else 12")
	firstSeed   = flag.Int("seed", 1, "seed of the campaign's first run; each run has the next one")
)

// amount is how many runs are asked for.
func amount(asked, all int) int {
	switch {
	case asked > 0:
		return asked
	case *campaign:
		return all
	}
	return 12
}

// drawn is a random training run.
type drawn struct {
	config spec.Config
	text   data.Text
	cpu    bool
	taps   bool
}

// draw makes the run of a seed.
func draw(seed int) drawn {
	return rapid.Custom(func(t *rapid.T) drawn {
		c := gen.Training(t, rapid.IntRange(1, 4))
		d := drawn{text: gen.Text(t, c), cpu: rapid.Bool().Draw(t, "cpu"), taps: rapid.Bool().Draw(t, "taps")}
		p := gen.Plan(t, c, all())
		p.Comm = rapid.SampledFrom([]names.Algorithm{names.Tree, names.Tree, names.Ring, names.Star}).Draw(t, "comm")
		if p.Validate(c.Model, c.Sequences) != nil {
			p.Comm = names.Tree
		}
		c.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true, Taps: d.taps}
		d.config = compare.On(c, p)
		return d
	}).Example(seed)
}

func (d *drawn) options() contracts.Options {
	text := func(string) (data.Text, error) { return d.text, nil }
	return contracts.Options{
		Options: suite.Options{Level: 1, Text: d.text},
		Oracle:  oracle.NewOracle(text),
		Texts:   text,
		Parts: launch.Parts{Deadline: 20 * time.Second, Backend: func(int) (kernels.Backend, error) {
			if d.cpu {
				return cpu.New(cpu.Options{Threads: 1})
			}
			return ref.New[float32](), nil
		}},
	}
}

func (d *drawn) String() string {
	return fmt.Sprintf("%+v on %s, %d sequences, taps %v", d.config.Model, d.config.Plan, d.config.Sequences, d.taps)
}

// delays makes every collective of every rank wait for a random while, mostly for
// none.
func delays(seed int) fault.Fault {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	every := func(*fault.Call) bool { return true }
	return fault.OnCalls(every, func(c *fault.Call) error {
		mu.Lock()
		wait := time.Duration(r.ExpFloat64() * float64(100*time.Microsecond))
		mu.Unlock()
		time.Sleep(min(wait, time.Millisecond))
		return c.Do()
	})
}

// each does n runs, each by its seed, on all processors, and prints how far it is.
func each(t *testing.T, what string, n int, one func(seed int)) {
	t.Logf("%d %s from -seed %d", n, what, *firstSeed)
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range next {
				one(seed)
			}
		})
	}
	begun := time.Now()
	for i := range n {
		if i > 0 && i%100 == 0 {
			fmt.Printf("%d of %d %s, %.0f s\n", i, n, what, time.Since(begun).Seconds())
		}
		next <- *firstSeed + i
	}
	close(next)
	wg.Wait()
}

// findings writes what clauses found.
func findings(all []contract.Result) string {
	var out []string
	for _, r := range all {
		s := r.Clause.ID
		if len(r.Findings) > 0 {
			s += " " + report.Place(&r.Findings[0]) + ": " + r.Findings[0].Message
		}
		out = append(out, s)
	}
	return strings.Join(out, "\n    ")
}

// TestCorrectRunsAreHeld: random models, plans, seeds, communicators and delays
// violate no clause of any contract; what a run has no evidence for is left out.
func TestCorrectRunsAreHeld(t *testing.T) {
	var mu sync.Mutex
	held, open := 0, 0
	each(t, "correct runs", amount(*correctRuns, 2000), func(seed int) {
		d := draw(seed)
		j, err := contracts.JudgeRun(t.Context(), d.config, delays(seed), d.options())
		switch {
		case err != nil:
			t.Errorf("-seed %d: %s: %v", seed, &d, err)
			return
		case j.Err != nil:
			t.Errorf("-seed %d: %s: %v", seed, &d, j.Err)
		case len(j.Violated()) > 0:
			t.Errorf("-seed %d: %s: a false alarm:\n    %s", seed, &d, findings(j.Violated()))
		case len(j.Held()) == 0:
			t.Errorf("-seed %d: %s: no clause is held", seed, &d)
		case asked(j, "C-TP-001") != (d.config.Plan.TP > 1), asked(j, "C-PIPE-001") != (d.config.Plan.PP > 1), asked(j, "C-ZERO-001") != (d.config.Plan.Zero > 0):
			t.Errorf("-seed %d: %s: contracts about the plan were not asked, or others were", seed, &d)
		}
		mu.Lock()
		defer mu.Unlock()
		held, open = held+len(j.Held()), open+len(j.Results)-len(j.Held())
	})
	t.Logf("%d clauses held, %d left out", held, open)
}

// asked reports whether a contract judged a run.
func asked(j *contracts.Judged, id string) bool {
	return slices.ContainsFunc(j.Results, func(r contract.Result) bool { return strings.HasPrefix(r.Clause.ID, id) })
}

// TestFlippedBitsAreSeen: one random bit of one buffer is flipped at a random
// moment of a random run. A clause names it, the run ends in an error, or its
// history is that of the unbroken run, but for messages that no loss, gradient,
// weight or moment depends on: then it changed nothing.
func TestFlippedBitsAreSeen(t *testing.T) {
	var mu sync.Mutex
	counts := map[string]int{}
	each(t, "flipped bits", amount(*flippedRuns, 1000), func(seed int) {
		what := flipped(t, seed)
		mu.Lock()
		defer mu.Unlock()
		counts[what]++
	})
	t.Log(counts)
}

// promise gives the run a plan that has the bits of a control: elsewhere a low bit
// is within the bound of any order of summation, and to be missed.
func (d *drawn) promise() {
	p, m := &d.config.Plan, d.config.Model
	p.Comm = names.Tree
	split := p.TP > 1 || p.PP > 1 || p.Zero > 0
	if !p.Exact(m) && !(split && p.SameBits(p.Unsplit(m), m)) {
		p.DP, p.MicroBatches, p.Zero, p.Shard = 1, 0, 0, ""
	}
	d.config.Recording.Taps = p.TP > 1 // what the split sums of a slice change shows in activations alone
	d.config = compare.On(d.config, *p)
}

// flipped says what became of one flipped bit.
func flipped(t *testing.T, seed int) string {
	d := draw(seed)
	d.promise()
	clean, products, err := d.unbroken(t.Context())
	if err != nil {
		t.Errorf("-seed %d: %s: %v", seed, &d, err)
		return "not run"
	}
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	bit := fault.DrawAnywhere(r, d.config.Plan.World(), products)
	j, err := contracts.JudgeRun(t.Context(), d.config, fault.FlipAnywhere(bit), d.options())
	switch {
	case err != nil:
		t.Errorf("-seed %d: %s: %v", seed, &d, err)
		return "not run"
	case len(j.Violated()) > 0:
		return "named"
	case j.Err != nil:
		return "ended in an error"
	case contracts.SameHistory(clean.History, j.History):
		return "changed nothing"
	case contracts.SameResults(clean.History, j.History):
		return "reached no result" // activations of positions without a target
	}
	t.Errorf("-seed %d: %s: %s: no clause sees it: %s", seed, &d, bit, contracts.Difference(clean.History, j.History))
	return "not seen"
}

// unbroken trains the run as it is; products is how many matrix products each
// rank computes at least.
func (d *drawn) unbroken(ctx context.Context) (out *launch.Outcome, products int, err error) {
	o := d.options()
	var counts fault.PerRank[int]
	fault.Products(&counts)(&o.Parts)
	cfg := d.config
	cfg.Text = d.text.Name
	if out, err = launch.Local(ctx, cfg, d.text, o.Parts); err != nil {
		return nil, 0, err
	}
	products = *counts.At(0)
	for r := range cfg.Plan.World() {
		products = min(products, *counts.At(r))
	}
	return out, max(1, products), nil
}
