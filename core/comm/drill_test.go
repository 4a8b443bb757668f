package comm_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

const drillSeed = 7

func drillPlan(size, level int) (all []drill.Record) {
	for r := range size {
		all = append(all, drill.Plan(size, r, drillSeed, level)...)
	}
	return all
}

// A run of the tree is the plan plus the expected digests, record by record.
func TestDrillGivesThePlan(t *testing.T) {
	for _, size := range []int{1, 2, 3, 6, 8} {
		got := comm.Drill(t.Context(), world(t, size, comm.Options{}), host, drillSeed, 0)
		want := drillPlan(size, 0)
		if len(got) != len(want) {
			t.Fatalf("world of %d: %d records, planned are %d", size, len(got), len(want))
		}
		for i := range want {
			want[i].Digest = drill.Expect(want[i])
			if !reflect.DeepEqual(want[i], got[i]) {
				t.Fatalf("world of %d, record %d:\nran     %+v\nplanned %+v", size, i, got[i], want[i])
			}
			if err := drill.Verify(got[i]); err != nil {
				t.Fatalf("world of %d: %+v: %v", size, got[i], err)
			}
		}
	}
}

func TestThoroughDrill(t *testing.T) {
	for _, r := range comm.Drill(t.Context(), world(t, 2, comm.Options{}), host, drillSeed, 1) {
		if err := drill.Verify(r); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
	}
}

// Other orders of addition fail on Order inputs and on nothing else.
func TestOrderShowsOnlyInOrderInputs(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Ring, names.Star} {
		bad := 0
		for _, r := range comm.Drill(t.Context(), world(t, 5, comm.Options{Algorithm: algo}), host, drillSeed, 0) {
			err := drill.Verify(r)
			if err != nil && r.Input == drill.Integer {
				t.Errorf("%s: %+v: %v", algo, r, err)
			}
			if err != nil {
				bad++
			}
		}
		if bad == 0 {
			t.Errorf("%s of 5 ranks has the tree's bits", algo)
		}
	}
}

func TestDrillStopsAtTheFirstError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	records := comm.Drill(ctx, world(t, 2, comm.Options{}), host, drillSeed, 0)
	if len(records) != 2 {
		t.Fatalf("%d records, want one of each rank", len(records))
	}
	for _, r := range records {
		if r.Err == "" || drill.Verify(r) == nil {
			t.Errorf("record of a failed operation: %+v", r)
		}
	}
}

func TestDrillRecordsSurviveJSON(t *testing.T) {
	records := comm.Drill(t.Context(), world(t, 2, comm.Options{}), host, drillSeed, 0)
	b, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	var back []drill.Record
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(records, back); diff != "" {
		t.Error(diff)
	}
}

// Every rank is refused at once in worlds of all kinds, whatever the algorithm.
func TestMisfitsAreRefused(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		for _, size := range []int{2, 3, 4, 5, 17} {
			for _, m := range drill.Misfits(size) {
				start := time.Now()
				errs := comm.DrillMisfit(t.Context(), world(t, size, comm.Options{Algorithm: algo}), host, m)
				for rank, err := range errs {
					if !errors.Is(err, comm.ErrMismatch) {
						t.Errorf("%s of %d, %s: rank %d was told %v", algo, size, m.Name, rank, err)
					}
				}
				if d := time.Since(start); d > 20*time.Second {
					t.Errorf("%s of %d, %s: took %v", algo, size, m.Name, d)
				}
			}
		}
	}
}

// panicking is a communicator that does not survive an all-gather.
type panicking struct{ comm.Communicator }

func (panicking) AllGather(context.Context, kernels.Tensor, kernels.Tensor, []int) error {
	panic("served")
}

// A panic is what a rank was told, which is not that the calls do not fit.
func TestMisfitsSurvivePanics(t *testing.T) {
	for _, m := range drill.Misfits(3) {
		if m.Calls[0].Op != names.OpAllGather {
			continue
		}
		comms := world(t, 3, comm.Options{})
		comms[0] = panicking{comms[0]}
		if err := comm.DrillMisfit(t.Context(), comms, host, m)[0]; err == nil || !strings.HasPrefix(err.Error(), "panic: served, in comm_test.panicking.AllGather (drill_test.go:") {
			t.Errorf("%s: rank 0 was told %v", m.Name, err)
		}
	}
}

// A communicator that panics in a drill, or splits into nothing that works, ends its
// rank's drill with a record that says so, and its peers'.
func TestDrillSurvivesPanics(t *testing.T) {
	for name, spoil := range map[string]func(comm.Communicator) comm.Communicator{
		"served": func(c comm.Communicator) comm.Communicator { return panicking{c} },
		"split":  func(c comm.Communicator) comm.Communicator { return unsplit{c} },
	} {
		comms := world(t, 3, comm.Options{Deadline: time.Minute})
		comms[1] = spoil(comms[1])
		ended := map[int]string{}
		for _, rec := range comm.Drill(t.Context(), comms, host, 1, 1) {
			ended[rec.Rank] = rec.Err
		}
		if !strings.HasPrefix(ended[1], "panic: "+name) || ended[0] == "" || ended[2] == "" {
			t.Errorf("%s: ranks ended with %v", name, ended)
		}
	}
}

// unsplit is a communicator that does not survive a split.
type unsplit struct{ comm.Communicator }

func (unsplit) Split(context.Context, int, int) (comm.Communicator, error) { panic("split") }
