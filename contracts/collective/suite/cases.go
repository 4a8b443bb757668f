// Package suite runs contract C-COMM-001.
package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/collective"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: collective.Contract(), Cases: list, Mutants: mutants(), Ignores: suite.Drilled()}
}

// worlds are the sizes that each algorithm is drilled in: powers of two and sizes
// that are none, and of the lowest level once, without a second time, sizes at which
// a rank or an owner no longer has one hexadecimal digit.
func worlds() []size {
	return []size{
		{names.Tree, 2, false}, {names.Tree, 3, false}, {names.Tree, 4, false}, {names.Tree, 5, false}, {names.Tree, 8, false},
		{names.Tree, 16, true}, {names.Tree, 17, true}, {names.Tree, 33, true},
		{names.Ring, 3, false}, {names.Ring, 4, false}, {names.Ring, 17, true},
		{names.Star, 3, false}, {names.Star, 4, false},
	}
}

type size struct {
	algorithm names.Algorithm
	ranks     int
	once      bool // at the lowest level
}

// list makes the cases.
func list(o suite.Options) []suite.Case {
	seed, level := cmp.Or(o.Seed, 1), min(max(o.Level, 1), 3)
	var out []suite.Case
	for _, w := range worlds() {
		s := collective.Spec{World: w.ranks, Algorithm: w.algorithm, Seed: seed, Level: level - 1, Repeats: [...]int{2, 3, 10}[level-1]}
		if w.once {
			s.Level, s.Repeats = max(0, level-2), level
		}
		cs := suite.Case{Name: fmt.Sprintf("%s of %d ranks", w.algorithm, w.ranks)}
		for _, c := range []string{"1", "2", "3", "4", "5", "6", "7"} {
			// Ring and star add in an order of their own; what runs once has no again.
			if (c != "2" || w.algorithm == names.Tree) && (c != "6" || s.Repeats > 1) {
				cs.Clauses = append(cs.Clauses, "C-COMM-001."+c)
			}
		}
		cs.Runs = map[contract.Role]suite.Run{contract.Test: {Key: fmt.Sprintf("drill %+v", s), Do: drilling{s}.run}}
		out = append(out, cs)
	}
	return out
}

// drilling makes the histories of drills.
type drilling struct{ collective.Spec }

// run makes the history of a drill with the ranks that are in this process.
func (s drilling) run(ctx context.Context, env suite.Env) (*trace.History, error) {
	backends, err := env.Parts.Backends(s.World)
	if err != nil {
		return nil, err
	}
	comms, err := s.world(ctx, env, backends, 0)
	if err != nil || len(comms) == 0 {
		return nil, err
	}
	logs, err := s.logs(comms, backends, env.Parts.Origin)
	if err != nil {
		return nil, err
	}
	backend := func(rank int) kernels.Backend { return backends[rank] }
	late := ""
	for i := range s.Repeats {
		for _, rec := range comm.Drill(ctx, comms, backend, s.Seed, s.Level) {
			d := rec.Digest
			logs[rec.Rank].Record(trace.Event{Kind: trace.KindDrill, Step: i, Op: rec.Op, Ranks: rec.Group,
				Count: int64(rec.Count), Digest: &d, Text: rec.Err})
			if late == "" && strings.Contains(rec.Err, names.Late) {
				late = rec.Err
			}
		}
	}
	if s.World > 1 {
		if err := s.misfits(ctx, env, backends, logs); err != nil {
			return nil, err
		}
	}
	for _, l := range logs {
		l.Record(trace.Event{Kind: trace.KindEnd, Step: s.Repeats - 1})
	}
	h, err := trace.Merge(slices.Collect(maps.Values(logs)))
	if err == nil && late != "" {
		err = errors.New(late)
	}
	return h, err
}

// logs are those of the ranks that are in this process.
func (s drilling) logs(comms []comm.Communicator, backends []kernels.Backend, at trace.Origin) (map[int]*trace.Log, error) {
	spec, err := json.Marshal(s.Spec)
	if err != nil {
		return nil, err
	}
	logs := map[int]*trace.Log{}
	for _, c := range comms {
		r := c.Rank()
		logs[r] = &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic,
			Rank: r, World: s.World, Backend: backends[r].Name(), Host: at.Host, Process: at.Process,
			Plan: fmt.Sprintf("drill of %d ranks, comm=%s", s.World, s.Algorithm), Spec: trace.Spec{Drill: spec}}}
	}
	return logs, nil
}

// world opens the communicators of a world that are in this process, as decorated.
func (s drilling) world(ctx context.Context, env suite.Env, backends []kernels.Backend, deadline time.Duration) ([]comm.Communicator, error) {
	env.Parts.Deadline = cmp.Or(deadline, env.Parts.Deadline)
	comms, err := env.Parts.Open(ctx, backends, comm.Options{Algorithm: s.Algorithm})
	if err != nil || env.Parts.Comm == nil {
		return comms, err
	}
	for i, c := range comms {
		comms[i] = env.Parts.Comm(c.Rank(), names.World, c)
	}
	return comms, nil
}

// patience is how long a rank waits for a peer in a world of a misfit: one that is
// not refused waits for all of it, and with less one that is refused might not be
// told in time.
const patience = 2 * time.Second

// misfits lets ranks call operations that do not fit, each time in a world of its
// own, since a failed group stays failed.
func (s drilling) misfits(ctx context.Context, env suite.Env, backends []kernels.Backend, logs map[int]*trace.Log) error {
	for _, m := range drill.Misfits(s.World) {
		comms, err := s.world(ctx, env, backends, patience)
		if err != nil {
			return err
		}
		backend := func(rank int) kernels.Backend { return backends[rank] }
		ranks := make([]int, len(comms))
		for i, c := range comms {
			ranks[i] = c.Rank()
		}
		for i, told := range comm.DrillMisfit(ctx, comms, backend, m) {
			rank := ranks[i]
			call := m.Calls[rank]
			e := trace.Event{Kind: trace.KindDrill, What: collective.Mismatch, Unit: m.Name, Op: call.Op, Count: int64(call.Count)}
			if told != nil {
				e.Text = told.Error()
			}
			logs[rank].Record(e)
		}
	}
	return nil
}
