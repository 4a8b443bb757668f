package contracts

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
)

var updateFields = flag.Bool("update-fields", false, "rewrite testdata/fields.txt")

// editing is a change of one field of an event to another value that the form of the
// event's kind allows.
type editing struct {
	field string
	has   func(e *trace.Event) bool // the event has the field
	edit  func(e *trace.Event)
}

// reasons say why no clause reads a field of the events whose sort begins so, under a
// plan without replicas; of others every field is read.
func reasons(plan string) [][2]string {
	if strings.Contains(plan, "dp=") {
		return nil
	}
	const alone = "C-DDP-001 speaks of it, of plans with replicas: here a group has one rank, and nothing to move"
	return [][2]string{
		{"comm all-reduce dp", alone},
		{"comm all-reduce-int dp", alone},
		{"comm broadcast dp", alone},
		{"leaf", alone},
		{"comm all-reduce-int world norm", "C-DDP-001.5 speaks of it, of plans with replicas; C-NORM-001.1 holds what comes of it against the control"},
		{"changed", "C-DDP-001.6 speaks of it, of plans with replicas, and C-DET-001.1 of repeated runs; the weights that were changed are compared"},
	}
}

func why(t *testing.T, plan, sort, field string) string {
	for _, r := range reasons(plan) {
		if strings.HasPrefix(sort, r[0]) {
			return r[1]
		}
	}
	t.Errorf("%s of %s: no clause reads it, and nobody says why", field, sort)
	return ""
}

func number(field string, of func(*trace.Event) *int64) editing {
	return editing{field, func(e *trace.Event) bool { return *of(e) != 0 }, func(e *trace.Event) { *of(e) += 1 }}
}

// another gives the next of several values.
func another(is string, all ...string) string {
	i := slices.Index(all, is)
	return all[(i+1)%len(all)]
}

func editings() []editing {
	return []editing{
		{"what", func(e *trace.Event) bool { return e.What != "" }, func(e *trace.Event) { e.What = otherWhat(e) }},
		{"tensor", func(e *trace.Event) bool { return e.Tensor != "" }, func(e *trace.Event) {
			e.Tensor = another(e.Tensor, "model.norm.weight", "model.layers.0.input_layernorm.weight")
		}},
		{"unit", func(e *trace.Event) bool { return e.Unit != "" }, func(e *trace.Event) { e.Unit = another(e.Unit, "block.0", "block.1", "final") }},
		{"op", func(e *trace.Event) bool { return e.Op != "" }, func(e *trace.Event) {
			if e.Op == names.OpSend || e.Op == names.OpRecv {
				e.Op = another(e.Op, names.OpSend, names.OpRecv)
				return
			}
			e.Op = another(e.Op, names.OpAllReduce, names.OpBroadcast, names.OpAllGather)
		}},
		{"group", func(e *trace.Event) bool { return e.Group != "" }, func(e *trace.Event) {
			e.Group = names.Axis(another(string(e.Group), string(names.DP), string(names.TP), string(names.PP)))
		}},
		{"ranks", func(e *trace.Event) bool { return len(e.Ranks) > 1 }, func(e *trace.Event) { e.Ranks = e.Ranks[:len(e.Ranks)-1] }},
		{"overlap", func(e *trace.Event) bool { return e.Kind == trace.KindComm }, func(e *trace.Event) { e.Overlap = !e.Overlap }},
		{"once", func(e *trace.Event) bool { return e.Once }, func(e *trace.Event) { e.Once = false }},
		{"seq", func(e *trace.Event) bool { return e.Seq != 0 }, func(e *trace.Event) { e.Seq++ }},
		{"worker", func(e *trace.Event) bool { return e.Worker != 0 }, func(e *trace.Event) { e.Worker++ }},
		{"micro", func(e *trace.Event) bool { return e.Micro != 0 }, func(e *trace.Event) { e.Micro++ }},
		{"peer", func(e *trace.Event) bool { return e.Peer != 0 }, func(e *trace.Event) { e.Peer-- }},
		number("lo", func(e *trace.Event) *int64 { return &e.Lo }),
		number("hi", func(e *trace.Event) *int64 { return &e.Hi }),
		number("count", func(e *trace.Event) *int64 { return &e.Count }),
		number("bytes", func(e *trace.Event) *int64 { return &e.Bytes }),
		number("moved", func(e *trace.Event) *int64 { return &e.Moved }),
		number("index", func(e *trace.Event) *int64 { return &e.Index }),
		{"digest", func(e *trace.Event) bool { return e.Digest != nil }, func(e *trace.Event) { d := *e.Digest; d.A ^= 1; e.Digest = &d }},
		{"squares", func(e *trace.Event) bool { return e.Squares != 0 }, func(e *trace.Event) { e.Squares *= 4 }},
		{"ids", func(e *trace.Event) bool { return len(e.IDs) > 0 }, func(e *trace.Event) { e.IDs = slices.Clone(e.IDs); e.IDs[0]++ }},
		{"ranges", func(e *trace.Event) bool { return len(e.Ranges) > 0 }, func(e *trace.Event) { e.Ranges = slices.Clone(e.Ranges); e.Ranges[0][1]++; e.Count++ }},
		{"value", func(e *trace.Event) bool { return e.Value != 0 }, func(e *trace.Event) { e.Value *= 2 }},
		{"bits", func(e *trace.Event) bool { return e.Bits != 0 }, func(e *trace.Event) { e.Bits ^= 1 }},
		{"text", func(e *trace.Event) bool { return e.Text != "" }, func(e *trace.Event) { e.Text += "." }},
		{"data", func(e *trace.Event) bool { return len(e.Data) > 0 }, func(e *trace.Event) { e.Data = slices.Clone(e.Data); e.Data[0]++ }},
	}
}

// otherWhat is another value of What that the kind of the event may have.
func otherWhat(e *trace.Event) string {
	for _, f := range trace.Forms() {
		if f.Kind == e.Kind && len(f.What) > 1 {
			var all []string
			for _, v := range f.What {
				all = append(all, v.Name)
			}
			return another(e.What, all...)
		}
	}
	return another(e.What, trace.Weight, trace.MomentM)
}

// family is a kind of plan; its runs are judged as recorded ones are.
type family struct{ plan string }

// about is what events are of one sort: changes are made to one of each.
func about(e *trace.Event) string {
	s := []string{string(e.Kind), e.What, e.Op, string(e.Group)}
	if e.Kind == trace.KindComm {
		unit, _, _ := strings.Cut(e.Unit, ".")
		s = append(s, unit)
		if e.Step < 0 {
			s = append(s, "before")
		}
	}
	if e.Kind == trace.KindDigest && e.Step < 0 {
		s = append(s, "initial")
	}
	return strings.Join(slices.DeleteFunc(s, func(x string) bool { return x == "" }), " ")
}

// witness judges a run by every contract that judges recorded runs.
type witness struct {
	contracts []*suite.Suite
	controls  map[string]*trace.History
	texts     func(string) ([]byte, error)
	oracle    contract.Oracle
}

func (w *witness) notices(t *testing.T, h *trace.History) string {
	for _, c := range w.contracts {
		e := contract.Evidence{Case: "fields", Oracle: w.oracle, Texts: w.texts,
			Histories: map[contract.Role]*trace.History{contract.Test: h, contract.Control: w.controls[c.ID]}}
		results, err := judge(t.Context(), c.Contract, []contract.Evidence{e})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if v := r.Verdict(); v != contract.Held {
				return fmt.Sprintf("%s %s", r.Clause.ID, v)
			}
		}
	}
	return ""
}

// edited copies a history with an event of a sort changed alike on all ranks that have
// one: what one rank alone says is compared with the others far more often.
func edited(h *trace.History, sort string, x editing) (*trace.History, bool) {
	out := *h
	out.Ranks = map[int][]trace.Event{}
	done := false
	for rank := range h.Header.World {
		events := slices.Clone(h.Ranks[rank])
		var at []int
		for i := range events {
			if about(&events[i]) == sort && x.has(&events[i]) {
				at = append(at, i)
			}
		}
		if len(at) > 0 {
			e := &events[at[len(at)/2]]
			x.edit(e)
			done = done || (&trace.Header{World: h.Header.World}).Admits(e) == nil
		}
		out.Ranks[rank] = events
	}
	return &out, done
}

// notHeld is the head of testdata/fields.txt.
const notHeld = "# plan, event, field: changed alike on all ranks in one place, it is noticed by no clause and by no reading of the\n" +
	"# record. No verdict says anything of what is listed here: it is not held.\n" +
	"# Nor is it of what only two fields together hide: live and peak bytes of activations and of other memory, under plans\n" +
	"# without stages or ZeRO, for which no clause has a formula; and a buffer that lies elsewhere in memory as a whole.\n"

// TestFieldsThatNoClauseReads edits every field of every sort of event. What no clause
// of any contract notices stands in testdata/fields.txt, with why.
func TestFieldsThatNoClauseReads(t *testing.T) {
	if race.Enabled {
		t.Skip("the fields are no matter of races")
	}
	var rows []string
	for _, f := range []family{{plan: "dp=2"}, {plan: "dp=2,tp=2"}, {plan: "pp=2"}, {plan: "dp=2,zero=3"}} {
		t.Run(f.plan, func(t *testing.T) { rows = append(rows, f.unread(t)...) })
	}
	got := notHeld + strings.Join(rows, "\n") + "\n"
	const path = "testdata/fields.txt"
	if *updateFields {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Error(d)
	}
}

func (f family) unread(t *testing.T) (rows []string) {
	cfg := on(t, "nano", f.plan, false)
	cfg.Model.SeqLen, cfg.Steps, cfg.Model.Layers = 2, 1, max(1, cfg.Plan.PP)
	cfg.Recording = spec.Recording{Digests: true, Workers: true, Taps: cfg.Plan.TP > 1, KeepGoing: true}
	train := func(c spec.Config) *trace.History {
		out, err := launch.Local(t.Context(), c, data.Default(), launch.Parts{Backend: good})
		if err != nil {
			t.Fatal(err)
		}
		return out.History
	}
	w := &witness{controls: map[string]*trace.History{}, oracle: oracle.NewOracle(defaultText),
		texts: func(string) ([]byte, error) { return data.Default().Bytes, nil }}
	for _, c := range All() {
		if training, whole := kind(c); !training || !whole || c.Judges != nil && !c.Judges(cfg.Plan) {
			continue
		}
		w.contracts = append(w.contracts, c)
		w.controls[c.ID] = train(controlOf(c, cfg))
	}
	h := train(cfg)
	if by := w.notices(t, h); by != "" {
		t.Fatalf("the run as it is: %s", by)
	}
	var sorts []string
	for e := range h.All {
		if s := about(&e); !slices.Contains(sorts, s) {
			sorts = append(sorts, s)
		}
	}
	slices.Sort(sorts)
	for _, sort := range sorts {
		for _, x := range editings() {
			{
				other, ok := edited(h, sort, x)
				if ok && w.notices(t, other) == "" {
					rows = append(rows, fmt.Sprintf("%-11s %-38s %-8s %s", f.plan, sort, x.field, why(t, f.plan, sort, x.field)))
				}
			}
		}
	}
	return rows
}
