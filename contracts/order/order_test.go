package order_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/order"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// history is that of two ranks and one step, by hand; scheduled says that it was
// watched.
func history(t *testing.T, scheduled bool) *trace.History {
	t.Helper()
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Plan, err = plan.Parse("dp=2"); err != nil {
		t.Fatal(err)
	}
	cfg.Model.Layers, cfg.Steps, cfg.Recording.Digests = 1, 1, true
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	h := &trace.History{Ranks: map[int][]trace.Event{}, Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic,
		World: 2, Plan: cfg.Plan.String(), Model: "nano", Backend: "none", Spec: cfg.Recorded()}}
	l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
	for rank := range 2 {
		add := func(e trace.Event) { e.Rank = rank; h.Ranks[rank] = append(h.Ranks[rank], e) }
		for step := -1; step < 1; step++ {
			for i := range l.Params {
				p := &l.Params[i]
				for _, what := range []string{trace.Weight, trace.MomentM, trace.MomentV, trace.Grad} {
					if what != trace.Grad || step == 0 {
						add(trace.Event{Kind: trace.KindDigest, Step: step, What: what, Tensor: p.Name, Count: int64(p.Len()), Digest: &kernels.Digest{A: p.ID, B: uint64(step + 2)}, Once: rank == 0})
					}
				}
			}
		}
		add(trace.Event{Kind: trace.KindScalar, What: trace.Loss, Value: 5, Bits: 7})
		add(trace.Event{Kind: trace.KindScalar, What: trace.Norm, Value: 2, Bits: 3})
		add(trace.Event{Kind: trace.KindSkip, Text: "why"})
		if scheduled {
			add(trace.Event{Kind: trace.KindTurns, Count: 100, Index: 50})
		}
		add(trace.Event{Kind: trace.KindEnd})
	}
	return h
}

// roles are the runs of a case, of which each is a history of its own.
func roles(t *testing.T) map[contract.Role]*trace.History {
	out := map[contract.Role]*trace.History{contract.Control: history(t, false), contract.Test: history(t, true)}
	for _, role := range order.Schedules() {
		out[role] = history(t, true)
	}
	return out
}

// verdicts are what the clauses came to, as letters: h, v, i; and all they say.
func verdicts(all map[contract.Role]*trace.History) (letters, says string) {
	results, err := contract.Judge(context.Background(), order.Contract(), []contract.Evidence{{Case: "by hand", Histories: all}})
	if err != nil {
		panic(err) // nothing ends that context
	}
	for _, r := range results {
		letters += r.Verdict().String()[:1]
		for _, f := range r.Findings {
			says += fmt.Sprintf("%s rank %d, step %d, %s: got %s, want %s: %s\n", strings.TrimPrefix(r.Clause.ID, "C-ORDER-001"), f.Rank, f.Step, f.Tensor, f.Got, f.Want, f.Message)
		}
		says += strings.Join(r.Doubts, "\n")
	}
	return letters, says
}

// late is the role whose run the edits are in.
const late contract.Role = "reductions late"

const embed = "model.embed_tokens.weight"

// TestEdits: one thing in one scheduled run is another, and the clauses about it
// say so.
func TestEdits(t *testing.T) {
	// event finds the first event of rank 1 that has a kind and, where given, What
	// and a step.
	event := func(x []trace.Event, kind trace.Kind, what string, step int) *trace.Event {
		i := slices.IndexFunc(x, func(e trace.Event) bool { return e.Kind == kind && (what == "" || e.What == what) && e.Step == step })
		return &x[i]
	}
	digest := func(e *trace.Event, d kernels.Digest) { e.Digest = &d }
	hazard := func(what string) trace.Event {
		return trace.Event{Kind: trace.KindHazard, Rank: 1, What: what, Unit: "block.0", Text: "who and whom"}
	}
	for _, c := range []struct {
		name string
		do   func(x []trace.Event) []trace.Event // of rank 1
		want string
		says string
	}{
		{"nothing", func(x []trace.Event) []trace.Event { return x }, "hhh", ""},
		{"a digest", func(x []trace.Event) []trace.Event {
			digest(event(x, trace.KindDigest, trace.MomentM, 0), kernels.Digest{A: 9})
			return x
		}, "vhh",
			`.1 rank 1, step 0, ` + embed + `: got digest 00000000000000090000000000000000 of 8192 elements, want digest`},
		{"a digest before the first step", func(x []trace.Event) []trace.Event {
			digest(event(x, trace.KindDigest, trace.Weight, -1), kernels.Digest{A: 9})
			return x
		}, "vhh", ".1 rank 1, step -1, " + embed},
		{"a count", func(x []trace.Event) []trace.Event { event(x, trace.KindDigest, trace.Grad, 0).Count--; return x }, "vhh", "of 8191 elements"},
		{"a loss", func(x []trace.Event) []trace.Event { event(x, trace.KindScalar, trace.Loss, 0).Value = 4; return x }, "vhh", `got 4, want 5: by schedule "reductions late" loss of rank 1 is another`},
		{"a loss's bits", func(x []trace.Event) []trace.Event { event(x, trace.KindScalar, trace.Loss, 0).Bits = 8; return x }, "vhh", "loss of rank 1 is another"},
		{"a norm", func(x []trace.Event) []trace.Event { event(x, trace.KindScalar, trace.Norm, 0).Value = 4; return x }, "vhh", "norm of rank 1 is another"},
		{"another step", func(x []trace.Event) []trace.Event { event(x, trace.KindScalar, trace.Norm, 0).Step = 1; return x }, "iii", "rank 1 recorded a scalar event in step 1, of steps 0 to 0"},
		{"another thing", func(x []trace.Event) []trace.Event {
			event(x, trace.KindScalar, trace.Norm, 0).What = trace.LR
			return x
		}, "vhh", "scalar lr, not scalar norm"},
		{"another tensor", func(x []trace.Event) []trace.Event {
			event(x, trace.KindDigest, trace.Grad, 0).Tensor = "other"
			return x
		}, "vhh", "did something else: digest grad"},
		{"another worker", func(x []trace.Event) []trace.Event { event(x, trace.KindDigest, trace.Grad, 0).Worker = 1; return x }, "vhh", "did something else: digest grad"},
		{"another reason", func(x []trace.Event) []trace.Event { event(x, trace.KindSkip, "", 0).Text = "not"; return x }, "vhh", "did something else: skip"},
		{"another kind", func(x []trace.Event) []trace.Event {
			event(x, trace.KindSkip, "", 0).Kind = trace.KindChanged
			return x
		}, "vhh", "changed , not skip"},
		{"a result more", func(x []trace.Event) []trace.Event {
			return slices.Insert(x, len(x)-1, *event(x, trace.KindSkip, "", 0))
		}, "ihh", "rank 1 recorded 88 results by schedule \"reductions late\", 87 in the control"},
		{"a result less", func(x []trace.Event) []trace.Event {
			return slices.DeleteFunc(x, func(e trace.Event) bool { return e.Kind == trace.KindSkip })
		}, "ihh", "recorded 86 results"},
		{"no loss", func(x []trace.Event) []trace.Event {
			return slices.DeleteFunc(x, func(e trace.Event) bool { return e.Kind == trace.KindScalar || e.Kind == trace.KindSkip })
		}, "iih", "saw"},
		{"not scheduled", func(x []trace.Event) []trace.Event {
			return slices.DeleteFunc(x, func(e trace.Event) bool { return e.Kind == trace.KindTurns })
		}, "iii", "saw"},
		{"no turn", func(x []trace.Event) []trace.Event { event(x, trace.KindTurns, "", 0).Count = 0; return x }, "iii", "saw"},
		{"not watched", func(x []trace.Event) []trace.Event { event(x, trace.KindTurns, "", 0).Index = 0; return x }, "iii", "saw"},
		{"a race", func(x []trace.Event) []trace.Event { return append(x, hazard("race")) }, "hvh", `.2 rank 1, step 0, block.0: got , want : by schedule "reductions late": race: who and whom`},
		{"a race and what comes of it", func(x []trace.Event) []trace.Event {
			digest(event(x, trace.KindDigest, trace.Weight, 0), kernels.Digest{A: 1, NonFinite: 3})
			return append(x, hazard("race"))
		}, "vvh", "race: who and whom"},
		{"not finite", func(x []trace.Event) []trace.Event {
			digest(event(x, trace.KindDigest, trace.Weight, 0), kernels.Digest{A: 1, NonFinite: 3})
			digest(event(x, trace.KindDigest, trace.Grad, 0), kernels.Digest{A: 1, NonFinite: 4})
			return x
		}, "vvh", `.2 rank 1, step 0, ` + embed + `: got , want : by schedule "reductions late": 3 elements of weight are not finite`},
		{"a deadlock", func(x []trace.Event) []trace.Event { return append(x, hazard(trace.Deadlock)) }, "hhv", `.3 rank 1, step 0, : got , want : by schedule "reductions late": who and whom`},
		{"no end", func(x []trace.Event) []trace.Event { return x[:len(x)-1] }, "iiv", `.3 rank 1, step 0, : got , want : by schedule "reductions late" rank 1 did not end`},
		{"a deadlock and no end", func(x []trace.Event) []trace.Event { return append(x[:len(x)-1], hazard(trace.Deadlock)) }, "iiv", "who and whom"},
		{"no end of what nobody scheduled", func(x []trace.Event) []trace.Event { return x[:len(x)-2] }, "iii", "saw"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := roles(t)
			h := all[late]
			h.Ranks[1] = c.do(h.Ranks[1])
			got, says := verdicts(all)
			if got != c.want || !strings.Contains(says, c.says) {
				t.Errorf("%s, want %s and %q:\n%s", got, c.want, c.says, says)
			}
			if n := strings.Count(says, "\n"); strings.Contains(c.want, "v") && n != strings.Count(c.want, "v") {
				t.Errorf("%d findings, want one of each clause that is violated:\n%s", n, says)
			}
		})
	}
}

// TestRoles: each schedule must be there and be of the control's configuration.
func TestRoles(t *testing.T) {
	for _, role := range append(order.Schedules(), contract.Control) {
		all := roles(t)
		delete(all, role)
		if got, says := verdicts(all); got != "iii" || !strings.Contains(says, string(role)) {
			t.Errorf("without %s: %s\n%s", role, got, says)
		}
	}
	all := roles(t)
	cfg, err := spec.Of(all[late].Header.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Seed++
	all[late].Header.Spec = cfg.Recorded()
	if got, says := verdicts(all); got != "iii" || !strings.Contains(says, "the reductions late run is of another configuration than the control") {
		t.Errorf("another configuration: %s\n%s", got, says)
	}
	all = roles(t)
	all["one more"] = history(t, true)
	all["one more"].Ranks[0] = all["one more"].Ranks[0][:3]
	if got, says := verdicts(all); got != "iii" || !strings.Contains(says, `by schedule "one more"`) {
		t.Errorf("a schedule more that shows nothing: %s\n%s", got, says)
	}
}

// TestLeast: what neither a scheduled run nor the control recorded is missing, also
// where both recorded something else in its place; the test run is a scheduled one.
func TestLeast(t *testing.T) {
	for _, c := range []struct {
		name    string
		instead []trace.Event
	}{
		{"nothing", nil},
		{"the norm", []trace.Event{{Kind: trace.KindScalar, What: trace.Norm}}},
		{"a worker's gradient", []trace.Event{{Kind: trace.KindDigest, What: trace.WorkerGrad, Tensor: embed, Digest: &kernels.Digest{}}}},
		{"what an optimizer gave", []trace.Event{{Kind: trace.KindDigest, What: trace.Updated, Tensor: embed, Digest: &kernels.Digest{}}}},
	} {
		all := roles(t)
		for _, h := range all {
			i := slices.IndexFunc(h.Ranks[1], func(e trace.Event) bool { return e.What == trace.Loss })
			h.Ranks[1] = slices.Concat(h.Ranks[1][:i], c.instead, h.Ranks[1][i+1:])
		}
		if got, says := verdicts(all); got != "iih" {
			t.Errorf("%s in place of the loss: %s\n%s", c.name, got, says)
		}
	}
	all := roles(t)
	all[contract.Test].Ranks[0] = all[contract.Test].Ranks[0][:3]
	if got, says := verdicts(all); got != "iii" {
		t.Errorf("a test run that shows nothing: %s\n%s", got, says)
	}
}
