package suite_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	kerns "github.com/lockstep-ml/lockstep/contracts/kern"
	kern "github.com/lockstep-ml/lockstep/contracts/kern/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestFamilies: every kernel is drilled in one family, and the families' clauses
// are the contract's, in order.
func TestFamilies(t *testing.T) {
	want := []string{drill.Memory, drill.Misuse}
	k := reflect.TypeFor[kernels.Kernels]()
	for i := range k.NumMethod() {
		want = append(want, k.Method(i).Name)
	}
	var got []string
	for i, f := range kerns.Families() {
		got = append(got, f.Kernels...)
		if f.Clause != kerns.Contract().Clauses[i].ID {
			t.Errorf("family %s is of clause %s, want %s", f.Name, f.Clause, kerns.Contract().Clauses[i].ID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("drilled are\n%v, want\n%v", got, want)
	}
}

// drilled runs the cases that have names on a backend.
func drilled(t *testing.T, be kernels.Backend, o suite.Options, names ...string) []contract.Evidence {
	t.Helper()
	e := &suite.Engine{Parts: launch.Parts{Backend: func(int) (kernels.Backend, error) { return be, nil }}}
	var trials []*suite.Trial
	for _, name := range names {
		cs, ok := kern.Suite().Find(o, name)
		if !ok {
			t.Fatalf("no case %q", name)
		}
		trials = append(trials, e.Plan("C-KERN-001", cs))
	}
	if err := e.Run(t.Context(), trials...); err != nil {
		t.Fatal(err)
	}
	if err := suite.Errors(trials...); err != nil {
		t.Fatal(err)
	}
	var out []contract.Evidence
	for _, x := range trials {
		out = append(out, x.Evidence(nil))
		for _, h := range out[len(out)-1].Histories {
			tracetest.Admitted(t, h)
		}
	}
	return out
}

// plain hides the tally of a backend and cannot be looked through.
type plain struct{ kernels.Backend }

// thick hides it too, and can.
type thick struct{ kernels.Backend }

func (t thick) Unwrap() kernels.Backend { return t.Backend }

// emptied has a name and a tally of its own.
type emptied struct {
	kernels.Backend
	name string
	all  []kernels.Routine
}

func (e emptied) Name() string             { return e.name }
func (e emptied) Tally() []kernels.Routine { return e.all }

const digests = "squares and digests" // the quickest case that has several kernels

// TestLessEvidenceIsInconclusive.
func TestLessEvidenceIsInconclusive(t *testing.T) {
	c := kern.Suite()
	e := drilled(t, ref.New[float32](), contracttest.Options(), digests)[0]
	contracttest.Want(t, c, e, contract.Held, "6", "7")
	contracttest.Want(t, c, e, contract.Inconclusive, "1", "2", "3", "4", "5", "8")
	seen := 0
	for name, drop := range map[string]func(trace.Event) bool{
		"every case":  func(e trace.Event) bool { return e.Kind == trace.KindKernel },
		"one case":    func(e trace.Event) bool { seen++; return seen == 100 },
		"a kernel":    func(e trace.Event) bool { return e.Op == "HashChanged" },
		"the history": nil,
	} {
		less := contracttest.WithoutRole(e, contract.Test)
		if drop != nil {
			less = contracttest.Without(e, contract.Test, drop)
		}
		t.Run(name, func(t *testing.T) { contracttest.Want(t, c, less, contract.Inconclusive, "6", "7") })
	}
	for name, change := range map[string]func(*trace.Event){
		"compared less":     func(e *trace.Event) { e.Count-- },
		"without a digest":  func(e *trace.Event) { e.Digest = nil },
		"guard was changed": func(e *trace.Event) { e.What = trace.Guard },
	} {
		t.Run(name, func(t *testing.T) {
			contracttest.Want(t, c, edited(e, 50, change), contract.Inconclusive, "6")
		})
	}
}

// edited changes the event of one case.
func edited(e contract.Evidence, n int, change func(*trace.Event)) contract.Evidence {
	return contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
		for i := range events {
			if events[i].Kind != trace.KindKernel {
				continue
			}
			if n--; n == 0 {
				change(&events[i])
			}
		}
		return events
	})
}

// TestEditedHistories: what was recorded as wrong is reported, by the clause that
// it is about; so is a definition that is not the recorded one.
func TestEditedHistories(t *testing.T) {
	c := kern.Suite()
	e := drilled(t, ref.New[float32](), contracttest.Options(), digests)[0]
	for _, x := range []struct {
		name    string
		change  func(*trace.Event)
		clauses []string
	}{
		{"output", func(e *trace.Event) { e.What = trace.Output }, []string{"6"}},
		{"returned", func(e *trace.Event) { e.What = trace.Returned }, []string{"6"}},
		{"failed", func(e *trace.Event) { e.What = trace.Failed }, []string{"6"}},
		{"guard", func(e *trace.Event) { e.What = trace.Guard }, []string{"7"}},
		{"input", func(e *trace.Event) { e.What = trace.Input }, []string{"7"}},
		{"definition", func(e *trace.Event) { e.Digest = &kernels.Digest{A: 1} }, []string{"6"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			contracttest.Want(t, c, edited(e, 50, x.change), contract.Violated, x.clauses...)
		})
	}
	twice := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
		return append(events, events[slices.IndexFunc(events, func(e trace.Event) bool { return e.Kind == trace.KindKernel })])
	})
	contracttest.Want(t, c, twice, contract.Violated, "6")
}

// TestSpecsAreNotTrusted: a header that claims nonsense gives no verdict.
func TestSpecsAreNotTrusted(t *testing.T) {
	c := kern.Suite()
	e := drilled(t, ref.New[float32](), contracttest.Options(), "memory")[0]
	contracttest.Want(t, c, e, contract.Held, "7")
	for _, spec := range []string{`{`, `{"kernels":[],"seed":1,"level":1}`, `{"kernels":["Add","Add"],"seed":1,"level":1}`, `{"kernels":["Multiply"],"seed":1,"level":1}`,
		`{"kernels":["Memory"],"seed":1,"level":3}`, `{"kernels":["Memory"],"seed":1}`, `{"world":2,"algorithm":"tree","repeats":1}`} {
		bad := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event { return events })
		bad.Histories[contract.Test].Header.Spec = trace.Spec{Drill: json.RawMessage(spec)}
		contracttest.Want(t, c, bad, contract.Inconclusive, "1", "6", "7", "8")
		bad.Histories[contract.Test].Header.Spec = trace.Spec{Observed: json.RawMessage(`{}`)}
		contracttest.Want(t, c, bad, contract.Inconclusive, "1", "6", "7", "8")
	}
}

// TestOtherSeeds: plain Go is held by the recorded results of one seed; on others
// only what has a definition in integers is evidence.
func TestOtherSeeds(t *testing.T) {
	c, o := kern.Suite(), contracttest.Options()
	o.Seed = 7
	if n, m := len(c.Cases(o)), len(c.Cases(contracttest.Options())); n != 2*m-1 { // devices have theirs in place of the contract's
		t.Errorf("%d cases with a seed, %d without", n, m)
	}
	e := drilled(t, ref.New[float32](), o, digests+" of seed 7", "gates and loss of seed 7", "gates and loss")
	contracttest.Want(t, c, e[0], contract.Held, "6", "7")
	contracttest.Want(t, c, e[1], contract.Inconclusive, "4")
	contracttest.Want(t, c, e[2], contract.Held, "4", "7")
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := contract.Held
	if be.Name() == "cpu-ref" {
		want = contract.Inconclusive
	}
	contracttest.Want(t, c, drilled(t, be, o, "gates and loss of seed 7")[0], want, "4")
}

// TestTallies: a routine that never ran is named, a backend without a tally gives
// no verdict, and a decorator that shows its backend has that one's.
func TestTallies(t *testing.T) {
	c := kern.Suite()
	for i, isa := range cpu.ISAs() {
		if race.Enabled && i > 0 {
			break // every kernel of one instruction set is enough of a minute
		}
		be, err := cpu.New(cpu.Options{ISA: isa, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		all := drilled(t, thick{be}, contracttest.Options(), "routines")[0]
		contracttest.Want(t, c, all, contract.Held, "8")
		if n := len(be.Tally()); (n == 0) != (isa == cpu.Ref) {
			t.Fatalf("%s: %d routines", isa, n)
		}
		less := contracttest.WithoutRole(all, "gates and loss")
		contracttest.Want(t, c, less, contract.Inconclusive, "8")
		doubts := strings.Join(contracttest.Verdicts(c, less)["8"].Doubts, "\n")
		for name, named := range map[string]bool{"SwiGLU": true, "swiglu" + strings.ToUpper(isa): isa != cpu.Ref, "SwiGLUGrad, shared": isa != cpu.Ref, "MatMulNT": false} {
			if strings.Contains(doubts, name) != named {
				t.Errorf("%s: doubts %q: names %s: want %t", isa, doubts, name, named)
			}
		}
		for what, drop := range map[string]func(trace.Event) bool{
			"a time":    func(e trace.Event) bool { return e.What == trace.Idle },
			"the total": func(e trace.Event) bool { return e.Kind == trace.KindRoutine && e.Unit == "" },
		} {
			t.Run(isa+" without "+what, func(t *testing.T) {
				contracttest.Want(t, c, contracttest.Without(all, contract.Test, drop), contract.Inconclusive, "8")
			})
		}
	}
	empty := drilled(t, emptied{ref.New[float32](), "cpu-avx512", nil}, contracttest.Options(), "routines")[0]
	contracttest.Want(t, c, empty, contract.Inconclusive, "8")
	still := drilled(t, emptied{ref.New[float32](), "cpu-avx512", []kernels.Routine{{Name: "one", Calls: 7}}}, contracttest.Options(), "routines")[0]
	contracttest.Want(t, c, still, contract.Inconclusive, "8")
	hidden := drilled(t, plain{ref.New[float32]()}, contracttest.Options(), "routines")[0]
	contracttest.Want(t, c, hidden, contract.Inconclusive, "8")
}
