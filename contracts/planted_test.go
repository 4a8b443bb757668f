package contracts

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// planted are contracts all of whose training runs have a bug: what of gives for a
// configuration, nil for none. They have the cases that are named: contract and name.
func planted(of func(spec.Config) fault.Fault, cases ...string) []*suite.Suite {
	var out []*suite.Suite
	for _, c := range All() {
		named := func(cs suite.Case) bool { return slices.Contains(cases, c.ID+" "+cs.Name) }
		if !slices.ContainsFunc(c.Cases(full().Options), named) {
			continue
		}
		own := *c
		own.Mutants = nil // on cases that are not there
		own.Cases = func(o suite.Options) []suite.Case {
			all := slices.DeleteFunc(c.Cases(o), func(cs suite.Case) bool { return !named(cs) })
			for i := range all {
				for role, r := range all[i].Runs {
					if r.Config == nil {
						continue
					}
					if f := of(*r.Config); f != nil {
						r.Parts = fault.All(r.Parts, f)
						all[i].Runs[role] = r
					}
				}
			}
			return all
		}
		out = append(out, &own)
	}
	return out
}

// blocks finds the number of a block in a parameter's name.
var blocks = regexp.MustCompile(`layers\.([0-9]+)\.`)

// misloaded gives the blocks of stage 1 the initial weights of those of stage 0.
func misloaded(c spec.Config) fault.Fault {
	if c.Plan.PP != 2 || c.Plan.Virtual > 1 {
		return nil
	}
	return fault.OnUpdater(fault.Every, func(_ kernels.Backend, u parallel.Updater) parallel.Updater {
		return &loading{u, c.Model.Layers / 2}
	})
}

type loading struct {
	parallel.Updater
	per int // blocks of a stage
}

func (l *loading) Init(ctx context.Context, fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	return l.Updater.Init(ctx, func(p *model.Param, local shard.Range, dst kernels.Tensor) {
		other := *p
		other.Name = blocks.ReplaceAllStringFunc(p.Name, func(s string) string {
			n, _ := strconv.Atoi(blocks.FindStringSubmatch(s)[1])
			return fmt.Sprintf("layers.%d.", n%l.per)
		})
		other.ID = kernels.TensorID(other.Name)
		fill(&other, local, dst)
	})
}

// unclipped clips on the first tensor-parallel rank only.
func unclipped(c spec.Config) fault.Fault {
	if c.Plan.TP < 2 {
		return nil
	}
	return fault.OnUpdate(func(u *fault.Update) {
		if c.Plan.Dims().Coord(u.Rank).TP > 0 {
			u.Step.Coef = 1
		}
		u.Do()
	})
}

// summed is a loss gradient that is not divided by the number of tokens.
func summed(spec.Config) fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return undivided{be} })
}

type undivided struct{ kernels.Backend }

func (u undivided) CrossEntropy(nll, z, sum, most, target kernels.Tensor, targets []int32, first int, _ float64) {
	u.Backend.CrossEntropy(nll, z, sum, most, target, targets, first, 1)
}

// perChunk advances the optimizer's counter once for each chunk of a stage.
func perChunk(c spec.Config) fault.Fault {
	if c.Plan.Virtual < 2 {
		return nil
	}
	return fault.OnCounter(func(_, taken int) int { return taken + c.Plan.Virtual - 1 })
}

// unreduced leaves out the reduction of one block's gradient.
func unreduced(c spec.Config) fault.Fault {
	if c.Plan.DP < 2 {
		return nil
	}
	return fault.OnCalls(fault.Reductions("block.1", fault.Every), fault.Skip)
}

func text(t *testing.T, r *report.Report) string {
	t.Helper()
	r.Seconds = 0 // what differs from run to run
	for i := range r.Contracts {
		r.Contracts[i].Seconds = 0
	}
	var b bytes.Buffer
	if err := report.Text(&b, r, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPlantedBugs: the report of a bug opens with its cause, whatever else is
// violated by it, and is no longer than a page.
func TestPlantedBugs(t *testing.T) {
	const (
		mesh   = "C-DDP-001 nano dp=2,tp=2,pp=2"
		split  = "C-TP-001 nano dp=1,tp=2"
		skip   = "C-NORM-001 odd dp=2,tp=2,zero=2 step 1 skipped"
		chunks = "C-PIPE-001 nano dp=1,pp=2,schedule=interleaved,virtual=2"
	)
	for _, x := range []struct {
		name, cases string // separated by ;
		bug         func(spec.Config) fault.Fault
		clause      string
		rank, step  int
		phase       contract.Phase
		says        []string // parts of the report's first lines
	}{
		{"blocks of stage 0 loaded into stage 1", mesh, misloaded, "C-DDP-001.4", 2, -1, contract.Initial, []string{
			"cause    initial state: rank 2 (dp 0, pp 1, tp 0) model.layers.2.self_attn.q_proj.weight[0]\n",
			"; equal to model.layers.0.self_attn.q_proj.weight of rank 0\n", "in       nano dp=2,tp=2,pp=2, before step 0",
			`repeat   verify --contract C-DDP-001 --case "nano dp=2,tp=2,pp=2"`}},
		{"clipping on one rank of two slices", split + ";" + skip, unclipped, "C-NORM-001.1", 1, 0, contract.Update, []string{
			"rank 1 did not apply the coefficient that it recorded", "got 1.00000", "first of 2 cases that differ"}},
		{"gradient not divided by the tokens", "C-DDP-001 nano dp=3", summed, "C-DDP-001.4", 0, 0, contract.Reduction, []string{"norm ratio 475"}},
		{"counter advanced per chunk", chunks, perChunk, "C-PIPE-001.4", 0, 0, contract.Update, []string{
			"counter of rank 0 differs", "got 2 want 1, ratio 2"}},
		{"all-reduce left out", "C-DDP-001 nano dp=2;C-TP-001 nano dp=2,tp=2", unreduced, "C-DDP-001.3", 0, 0, contract.Reduction, []string{
			"the gradient of unit block.1 was reduced 0 times on rank 0, not 1", "got 0 want 1"}},
		{"all-reduce of slices left out", split, unsummed, "C-TP-001.7", 0, 0, contract.Forward, []string{"rank 0 made 1 all-reduces in group tp, the plan implies 2"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, err := verify(t, x.bug, strings.Split(x.cases, ";")...)
			if err != nil {
				t.Fatal(err)
			}
			s := text(t, r)
			head := strings.Join(strings.SplitAfter(s, "\n")[:15], "")
			t.Logf("%d lines\n%s", strings.Count(s, "\n"), head)
			c := r.Cause
			if r.Verdict != contract.Violated || c == nil {
				t.Fatalf("%s, no cause", r.Verdict)
			}
			if f := c.Finding; c.Clause != x.clause || f.Rank != x.rank || f.Step != x.step || f.Phase != x.phase {
				t.Errorf("the cause is %s, rank %d, step %d, %s; want %s, rank %d, step %d, %s", c.Clause, f.Rank, f.Step, f.Phase, x.clause, x.rank, x.step, x.phase)
			}
			for _, want := range x.says {
				if !strings.Contains(head, want) {
					t.Errorf("the report does not say %q", want)
				}
			}
			if n := strings.Count(s, "\n"); n > 75 {
				t.Errorf("%d lines", n)
			}
			if again, err := verify(t, x.bug, strings.Split(x.cases, ";")...); err != nil || text(t, again) != s {
				t.Errorf("another report the second time (%v):\n%s", err, text(t, again))
			}
		})
	}
}

// verify runs cases that have a bug.
func verify(t *testing.T, bug func(spec.Config) fault.Fault, cases ...string) (*report.Report, error) {
	t.Helper()
	o := full()
	if err := o.Check(nil); err != nil {
		t.Fatal(err)
	}
	return o.verify(t.Context(), planted(bug, cases...))
}

// unsummed leaves out a block's sum over slices, on every rank.
func unsummed(c spec.Config) fault.Fault {
	if c.Plan.TP < 2 {
		return nil
	}
	return fault.OnCalls(func(c *fault.Call) bool {
		return c.Group == names.TP && c.Op == names.OpAllReduce && c.Label.Tensor == "block.0" && c.N%4 == 0
	}, fault.Skip)
}

// TestBrokenControls: where the control is wrong itself the report says so, and does
// not blame the run that differs from it.
func TestBrokenControls(t *testing.T) {
	r, err := verify(t, func(c spec.Config) fault.Fault {
		if c.Plan.World() > 1 {
			return nil
		}
		return fault.OnUpdate(func(u *fault.Update) {
			u.Step.T++
			u.Do()
		})
	}, "C-DDP-001 nano dp=2")
	if err != nil {
		t.Fatal(err)
	}
	s := text(t, r)
	for _, want := range []string{"cause    update: control run rank 0", "control  that of nano dp=2 (dp=1) has findings against it, C-MODEL-001.4: what differs from it may be right"} {
		if !strings.Contains(s, want) {
			t.Errorf("the report does not say %q:\n%s", want, s)
		}
	}
	if len(r.Controls) != 1 || r.Cause == nil || r.Cause.Finding.Of != contract.Control {
		t.Errorf("controls %+v, cause %+v", r.Controls, r.Cause)
	}
}

// TestNormOfAWrongGradient: the norm is judged by the gradient that there is.
func TestNormOfAWrongGradient(t *testing.T) {
	r, err := verify(t, func(c spec.Config) fault.Fault {
		if c.Plan.DP < 2 {
			return nil
		}
		return fault.FlipBit(fault.Every, "block.0", 0, 5, 20)
	}, "C-NORM-001 odd dp=4 step 1 skipped")
	if err != nil {
		t.Fatal(err)
	}
	cl := r.Contracts[0].Clauses
	if cl[0].Verdict != contract.Held || cl[1].Verdict != contract.Held || cl[3].Verdict != contract.Violated {
		t.Errorf("clauses 1, 2 and 4 are %s, %s and %s; want held, held and violated: %q", cl[0].Verdict, cl[1].Verdict, cl[3].Verdict, cl[1].Doubts)
	}
	r, err = verify(t, func(c spec.Config) fault.Fault {
		if c.Plan.DP < 2 {
			return nil
		}
		return fault.All(fault.FlipBit(fault.Every, "block.0", 0, 5, 20), fault.LocalNorm())
	}, "C-NORM-001 odd dp=4 step 1 skipped")
	if err != nil {
		t.Fatal(err)
	}
	if cl := r.Contracts[0].Clauses[1]; cl.Verdict != contract.Violated {
		t.Errorf("the norm is another, and clause 2 is %s: %q", cl.Verdict, cl.Doubts)
	}
}
