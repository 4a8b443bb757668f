package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/kern"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Clauses of every family, and of all together.
const (
	keptClause  = "C-KERN-001.7"
	ranClause   = "C-KERN-001.8"
	movedClause = "C-KERN-001.9"
	wholeClause = "C-KERN-001.10"
)

// routines is the name of the case that has the runs of all families.
const routines = "routines"

// list makes a case of every family of kernels, on the seed whose results are
// recorded, one of all of their runs, and one of what devices do besides; with another
// seed those of that seed on top. From level 2 on every device is drilled, before one of
// each process.
func list(o suite.Options) []suite.Case {
	world := max(1, o.Processes)
	less := ""
	if n := o.Places(); o.Level > 1 {
		world = n
	} else if n > world {
		less = fmt.Sprintf("at level 1 kernels are drilled on one device of %d that each process has; --level 2 drills each", o.Devices)
	}
	level := min(max(o.Level, 1), 2)
	out := ofSeed(golden.KernelSeed, level, world, "")
	if o.Seed != 0 && o.Seed != golden.KernelSeed {
		out = append(out, ofSeed(o.Seed, level, world, fmt.Sprintf(" of seed %d", o.Seed))...)
	}
	out[0].Less = less
	return append(out, devices(o))
}

// ofSeed makes the cases of one seed for a number of ranks; suffix ends their names.
func ofSeed(seed uint64, level, world int, suffix string) []suite.Case {
	var out []suite.Case
	all := suite.Case{Name: routines + suffix, Clauses: []string{ranClause}, Runs: map[contract.Role]suite.Run{}}
	for i, f := range kern.Families() {
		s := kern.Spec{Kernels: f.Kernels, Seed: seed, Level: level}
		// Alone: the tally of a backend that others use would count their calls too,
		// and the drill keeps all processors busy by itself.
		run := suite.Run{Key: fmt.Sprintf("drill of kernels %+v on %d", s, world), Alone: true, Do: drilling{s, world}.run}
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

// drilling makes the history of a drill of kernels, on each rank of a world by itself.
type drilling struct {
	kern.Spec
	world int
}

// run drills the backends of the ranks that are in this process, side by side.
func (s drilling) run(ctx context.Context, env suite.Env) (*trace.History, error) {
	return places(env, s.world, "drill of "+strings.Join(s.Kernels, ", "), s.Spec, func(backends []kernels.Backend, logs map[int]*trace.Log) error {
		var group errgroup.Group
		for rank, log := range logs {
			group.Go(func() error {
				return guard.Do(func() error { return s.drill(ctx, backends[rank], log) })
			})
		}
		return group.Wait()
	})
}

// places makes the history of what do does with the ranks of a world that are in this
// process, each of which has a log; another process has the others.
func places(env suite.Env, world int, plan string, spec any, do func([]kernels.Backend, map[int]*trace.Log) error) (*trace.History, error) {
	backends, err := env.Parts.Backends(world)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	logs := map[int]*trace.Log{}
	for rank, be := range backends {
		if be != nil {
			logs[rank] = &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, Rank: rank, World: world,
				Backend: be.Name(), Plan: plan, Spec: trace.Spec{Drill: text}}}
			env.Parts.Place(&logs[rank].Header, be)
		}
	}
	if len(logs) == 0 {
		return nil, nil
	}
	err = do(backends, logs)
	h, merr := trace.Merge(slices.Collect(maps.Values(logs)))
	return h, errors.Join(err, merr)
}

// drill drills one backend.
func (s drilling) drill(ctx context.Context, be kernels.Backend, log *trace.Log) error {
	tallier, _ := kernels.TallierOf(be)
	record(log, trace.Before, tallier)
	again := map[string]int{} // cases run once more, by kernel
	err := drill.Run(ctx, be, ref.New[float32](), s.Cases(), func(r drill.Result) {
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
	return err
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
