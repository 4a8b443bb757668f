// Package suite runs contract C-COMM-001.
package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/lockstep-ml/lockstep/contracts/collective"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: collective.Contract(), Cases: list, Mutants: mutants()}
}

// orderless are the clauses of algorithms that add in an order of their own.
var orderless = [...]string{"1", "3", "4", "5", "6", "7"}

// list makes the cases: the tree on worlds that are powers of two and worlds
// that are not, ring and star on one of each.
func list(o suite.Options) []suite.Case {
	seed, level := cmp.Or(o.Seed, 1), min(max(o.Level, 1), 3)
	repeats := [...]int{2, 3, 10}[level-1]
	var out []suite.Case
	for _, a := range []struct {
		algorithm names.Algorithm
		worlds    []int
	}{{names.Tree, []int{2, 3, 4, 5, 8}}, {names.Ring, []int{3, 4}}, {names.Star, []int{3, 4}}} {
		for _, n := range a.worlds {
			s := collective.Spec{World: n, Algorithm: a.algorithm, Seed: seed, Level: level - 1, Repeats: repeats}
			cs := suite.Case{Name: fmt.Sprintf("%s of %d ranks", a.algorithm, n)}
			if a.algorithm != names.Tree {
				for _, c := range orderless {
					cs.Clauses = append(cs.Clauses, "C-COMM-001."+c)
				}
			}
			cs.Runs = map[contract.Role]suite.Run{contract.Test: {Key: fmt.Sprintf("drill %+v", s), Do: drilling{s}.run}}
			out = append(out, cs)
		}
	}
	return out
}

// drilling makes the histories of drills.
type drilling struct{ collective.Spec }

// run makes the history of a drill with all ranks in this process.
func (s drilling) run(ctx context.Context, env suite.Env) (*trace.History, error) {
	backends, comms, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	logs, err := s.logs(backends[0].Name())
	if err != nil {
		return nil, err
	}
	backend := func(rank int) kernels.Backend { return backends[rank] }
	for i := range s.Repeats {
		for _, rec := range comm.Drill(ctx, comms, backend, s.Seed, s.Level) {
			d := rec.Digest
			logs[rec.Rank].Record(trace.Event{Kind: trace.KindDrill, Step: i, Op: rec.Op, Ranks: rec.Group,
				Count: int64(rec.Count), Digest: &d, Text: rec.Err})
		}
	}
	if s.World > 1 {
		if err := s.mismatch(ctx, env, logs); err != nil {
			return nil, err
		}
	}
	for _, l := range logs {
		l.Record(trace.Event{Kind: trace.KindEnd, Step: s.Repeats - 1})
	}
	return trace.Merge(logs)
}

func (s drilling) logs(backend string) ([]*trace.Log, error) {
	spec, err := json.Marshal(s.Spec)
	if err != nil {
		return nil, err
	}
	logs := make([]*trace.Log, s.World)
	for r := range logs {
		logs[r] = &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic,
			Rank: r, World: s.World, Backend: backend,
			Plan: fmt.Sprintf("drill of %d ranks, comm=%s", s.World, s.Algorithm), Spec: trace.Spec{Drill: spec}}}
	}
	return logs, nil
}

// open makes the ranks' backends and their communicators, as decorated.
func (s drilling) open(ctx context.Context, env suite.Env) ([]kernels.Backend, []comm.Communicator, error) {
	backends, err := env.Parts.Backends(s.World)
	if err != nil {
		return nil, nil, err
	}
	comms, err := env.Parts.Open(ctx, backends, comm.Options{Algorithm: s.Algorithm})
	if err == nil && env.Parts.Comm != nil {
		for r := range comms {
			comms[r] = env.Parts.Comm(r, names.World, comms[r])
		}
	}
	return backends, comms, err
}

// mismatch lets the last rank call with one element more than its peers, in a
// world of its own, since a failed group stays failed.
func (s drilling) mismatch(ctx context.Context, env suite.Env, logs []*trace.Log) error {
	backends, comms, err := s.open(ctx, env)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	errs := make([]error, s.World)
	for r := range comms {
		wait.Go(func() {
			defer comms[r].Close()
			n := 4
			if r == s.World-1 {
				n++
			}
			buf, err := backends[r].Alloc(n)
			if err != nil {
				errs[r] = err
				return
			}
			defer backends[r].Free(buf)
			e := trace.Event{Kind: trace.KindDrill, What: collective.Mismatch, Op: names.OpAllReduce, Count: int64(n)}
			if err := comms[r].AllReduce(ctx, kernels.Flat(buf), kernels.Sum); err != nil {
				e.Text = err.Error()
			}
			logs[r].Record(e)
		})
	}
	wait.Wait()
	return cmp.Or(errs...)
}
