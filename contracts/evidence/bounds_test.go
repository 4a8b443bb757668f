package evidence_test

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// TestWhereARunBeginsAndEnds: a record that does not say so is not judged, by no clause,
// and the doubt says which rank contradicts which.
func TestWhereARunBeginsAndEnds(t *testing.T) {
	resume := func(step int, count int64) trace.Event {
		return trace.Event{Kind: trace.KindResume, Step: step, Count: count}
	}
	one := resume(0, 2)
	for name, x := range map[string]struct {
		start bool
		ranks [2][]trace.Event
		doubt string // empty where the clause is asked
	}{
		"fresh":           {false, [2][]trace.Event{}, ""},
		"resumed":         {true, [2][]trace.Event{{one}, {one}}, ""},
		"without state":   {false, [2][]trace.Event{{one}, {one}}, ""},
		"on rank 0 only":  {true, [2][]trace.Event{{one}, nil}, "rank 0 goes on from a checkpoint at step 0 after 2 optimizer steps, rank 1 from none"},
		"on rank 1 only":  {false, [2][]trace.Event{nil, {one}}, "rank 1 goes on from a checkpoint at step 0 after 2 optimizer steps, rank 0 from none"},
		"on none":         {true, [2][]trace.Event{}, "no rank says at which step"},
		"another count":   {true, [2][]trace.Event{{one}, {resume(0, 3)}}, "rank 1 goes on at step 0 after 3 optimizer steps, rank 0 at step 0 after 2"},
		"another step":    {true, [2][]trace.Event{{one}, {resume(1, 2)}}, "rank 1 goes on at step 1 after 2 optimizer steps, rank 0 at step 0 after 2"},
		"twice":           {true, [2][]trace.Event{{one, one}, {one}}, "rank 0 goes on from a checkpoint twice"},
		"after the last":  {false, [2][]trace.Event{{{Kind: trace.KindTokens, Step: 1}}, nil}, "rank 0 recorded a tokens event in step 1, of steps 0 to 0"},
		"stored behind":   {false, [2][]trace.Event{{{Kind: trace.KindStored, Step: 1}}, nil}, ""},
		"in the last one": {false, [2][]trace.Event{{{Kind: trace.KindTokens, Step: 0}}, nil}, ""},
	} {
		r := spread(t, "dp=2")
		cfg := r.Config
		cfg.Recording.Start = x.start
		r.Header.Spec = cfg.Recorded()
		for rank, events := range x.ranks {
			for i := range events {
				events[i].Rank = rank
			}
			r.Ranks[rank] = events
		}
		called := false
		result := judge(evidence.With(func(p *contract.Pass, r *evidence.Run) { called = true }), map[contract.Role]*trace.History{contract.Test: r.History})
		if called != (x.doubt == "") || !strings.Contains(strings.Join(result.Doubts, "\n"), x.doubt) {
			t.Errorf("%s: called %v, doubts %q", name, called, result.Doubts)
		}
	}
}
