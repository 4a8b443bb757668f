package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/kern"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Clauses of every family, and of all together.
const (
	keptClause = "C-KERN-001.7"
	ranClause  = "C-KERN-001.8"
)

// routines is the name of the case that has the runs of all families.
const routines = "routines"

// list makes a case of every family of kernels, on the seed whose results are
// recorded, and one of all of their runs; with another seed those of that seed on
// top.
func list(o suite.Options) []suite.Case {
	level := min(max(o.Level, 1), 2)
	out := ofSeed(golden.KernelSeed, level, "")
	if o.Seed != 0 && o.Seed != golden.KernelSeed {
		out = append(out, ofSeed(o.Seed, level, fmt.Sprintf(" of seed %d", o.Seed))...)
	}
	return out
}

// ofSeed makes the cases of one seed; suffix ends their names.
func ofSeed(seed uint64, level int, suffix string) []suite.Case {
	var out []suite.Case
	all := suite.Case{Name: routines + suffix, Clauses: []string{ranClause}, Runs: map[contract.Role]suite.Run{}}
	for i, f := range kern.Families() {
		s := kern.Spec{Kernels: f.Kernels, Seed: seed, Level: level}
		// Alone: the tally of a backend that others use would count their calls too,
		// and the drill keeps all processors busy by itself.
		run := suite.Run{Key: fmt.Sprintf("drill of kernels %+v", s), Alone: true, Do: drilling{s}.run}
		clauses := []string{f.Clause}
		if f.Clause != keptClause {
			clauses = append(clauses, keptClause)
		}
		out = append(out, suite.Case{Name: f.Name + suffix, Clauses: clauses, Runs: map[contract.Role]suite.Run{contract.Test: run}})
		role := contract.Role(f.Name)
		if i == 0 {
			role = contract.Test
		}
		all.Runs[role] = run
	}
	return append(out, all)
}

// drilling makes the history of a drill of kernels.
type drilling struct{ kern.Spec }

// run drills the backend of rank 0.
func (s drilling) run(ctx context.Context, env suite.Env) (*trace.History, error) {
	backends, err := env.Parts.Backends(1)
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(s.Spec)
	if err != nil {
		return nil, err
	}
	be := backends[0]
	if be == nil {
		return nil, nil // another process has it
	}
	log := &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, World: 1, Backend: be.Name(),
		Host: env.Parts.Origin.Host, Process: env.Parts.Origin.Process,
		Plan: "drill of " + strings.Join(s.Kernels, ", "), Spec: trace.Spec{Drill: spec}}}
	tallier, _ := kernels.TallierOf(be)
	record(log, trace.Before, tallier)
	again := map[string]int{} // cases run once more, by kernel
	err = drill.Run(ctx, be, ref.New[float32](), s.Cases(), func(r drill.Result) {
		e := event(r)
		if k := r.Case.Kernel; r.Difference != nil && again[k] < explained {
			again[k]++
			e.Text += once(be, tallier, r)
		}
		log.Record(e)
	})
	record(log, trace.After, tallier)
	record(log, trace.Idle, tallier)
	if err == nil {
		log.Record(trace.Event{Kind: trace.KindEnd})
	}
	h, merr := trace.Merge([]*trace.Log{log})
	if merr != nil {
		return nil, merr
	}
	return h, err
}

// record adds a backend's tally; of one that offers none, nothing.
func record(log *trace.Log, when string, t kernels.Tallier) {
	if t == nil {
		return
	}
	all := t.Tally()
	log.Record(trace.Event{Kind: trace.KindRoutine, What: when, Count: int64(len(all))})
	for _, r := range all {
		log.Record(trace.Event{Kind: trace.KindRoutine, What: when, Unit: r.Name, Count: int64(r.Calls)})
	}
}

// event is what came of a case.
func event(r drill.Result) trace.Event {
	e := trace.Event{Kind: trace.KindKernel, Op: r.Case.Kernel, Unit: r.Case.Name, Count: int64(r.Elements), What: trace.Same}
	if e.Op != drill.Memory && e.Op != drill.Misuse {
		e.Digest = &r.Expected.Digest
	}
	if d := r.Difference; d != nil {
		e.What, e.Tensor, e.Got, e.Want, e.Text = kind(d.Kind), d.At, d.Got, d.Want, d.String()
	}
	return e
}

// kind is What of a difference.
func kind(k drill.Kind) string {
	switch k {
	case drill.Output:
		return trace.Output
	case drill.ReadOnly:
		return trace.Input
	case drill.Guard:
		return trace.Guard
	case drill.Returned:
		return trace.Returned
	}
	return trace.Failed
}

// explained is how many wrong cases of a kernel are run once more, and shown how
// many of the routines that then run are named.
const (
	explained = 8
	shown     = 6
)

// once runs a case that went wrong once more and says what ran and what came of
// it.
func once(be kernels.Backend, t kernels.Tallier, r drill.Result) string {
	before := calls(t)
	_, d := r.Expected.Check(be)
	var ran []string
	for _, x := range routinesOf(t) {
		if x.Calls != before[x.Name] {
			ran = append(ran, x.Name)
		}
	}
	out := ""
	switch {
	case d == nil:
		out = "; once more it was right"
	case *d != *r.Difference:
		out = "; once more: " + d.String()
	}
	if len(ran) > shown {
		ran = append(ran[:shown], fmt.Sprintf("%d more", len(ran)-shown))
	}
	if len(ran) > 0 {
		out += "; ran " + strings.Join(ran, ", ")
	}
	return out
}

// routinesOf is a tally, empty where there is none.
func routinesOf(t kernels.Tallier) []kernels.Routine {
	if t == nil {
		return nil
	}
	return t.Tally()
}

// calls are the calls of a tally by name.
func calls(t kernels.Tallier) map[string]uint64 {
	out := map[string]uint64{}
	for _, r := range routinesOf(t) {
		out[r.Name] = r.Calls
	}
	return out
}
