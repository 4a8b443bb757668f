package comm_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/comm"
)

func TestQueueRunsInOrder(t *testing.T) {
	q := comm.NewQueue(t.Context())
	defer q.Close()
	var got []int
	for round := range 3 {
		for i := range 50 {
			q.Submit(func(context.Context) error {
				got = append(got, 50*round+i)
				return nil
			})
		}
		if err := q.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(got) != 50*(round+1) {
			t.Fatalf("%d functions ran before Wait returned, want %d", len(got), 50*(round+1))
		}
	}
	if !slices.IsSorted(got) {
		t.Errorf("order %v", got)
	}
}

func TestQueueDropsWhatFollowsAnError(t *testing.T) {
	q := comm.NewQueue(t.Context())
	first, ran := errors.New("first"), false
	q.Submit(func(context.Context) error { return first })
	q.Submit(func(context.Context) error { ran = true; return errors.New("second") })
	if err := q.Wait(); err != first {
		t.Errorf("Wait: %v, want %v", err, first)
	}
	q.Submit(func(context.Context) error { ran = true; return nil })
	if err := q.Close(); err != first {
		t.Errorf("Close: %v, want %v", err, first)
	}
	if ran {
		t.Error("a function ran after an error")
	}
}

func TestQueueRefusesAfterClose(t *testing.T) {
	q := comm.NewQueue(t.Context())
	if err := errors.Join(q.Close(), q.Close()); err != nil {
		t.Errorf("closing an idle queue: %v", err)
	}
	q.Submit(func(context.Context) error { t.Error("ran"); return nil })
	if err := q.Wait(); !errors.Is(err, comm.ErrQueueClosed) {
		t.Errorf("Wait: %v", err)
	}
}

func TestQueueCloseDrains(t *testing.T) {
	q := comm.NewQueue(t.Context())
	n := 0
	for range 10 {
		q.Submit(func(context.Context) error { n++; return nil })
	}
	if err := q.Close(); err != nil || n != 10 {
		t.Errorf("Close: %v after %d of 10 functions", err, n)
	}
}

func TestQueueSurvivesAGoroutineThatEnds(t *testing.T) {
	q := comm.NewQueue(t.Context())
	q.Submit(func(context.Context) error { runtime.Goexit(); return nil })
	q.Submit(func(context.Context) error { t.Error("ran"); return nil })
	if err := q.Wait(); err == nil {
		t.Error("Wait: no error")
	}
	if err := q.Close(); err == nil {
		t.Error("Close: no error")
	}
}

func TestQueueSurvivesAPanic(t *testing.T) {
	q := comm.NewQueue(t.Context())
	q.Submit(func(context.Context) error { panic("impossible shape") })
	q.Submit(func(context.Context) error { t.Error("ran"); return nil })
	for _, err := range []error{q.Wait(), q.Close()} {
		if err == nil || !strings.Contains(err.Error(), "impossible shape") {
			t.Errorf("error %v", err)
		}
	}
}

func TestQueuePassesItsContext(t *testing.T) {
	type key struct{}
	q := comm.NewQueue(context.WithValue(t.Context(), key{}, 7))
	var got any
	q.Submit(func(ctx context.Context) error { got = ctx.Value(key{}); return nil })
	if err := q.Close(); err != nil || got != 7 {
		t.Errorf("value %v, error %v", got, err)
	}
}

func TestQueueWaitsForOneFunction(t *testing.T) {
	q := comm.NewQueue(t.Context())
	defer q.Close()
	ran, stop := 0, make(chan struct{})
	q.Submit(func(context.Context) error { ran++; return nil })
	second := q.Submit(func(context.Context) error { ran++; return nil })
	q.Submit(func(context.Context) error { <-stop; return nil })
	if err := q.WaitFor(second); err != nil || ran != 2 {
		t.Errorf("%d functions ran: %v", ran, err)
	}
	close(stop)
	first := errors.New("first")
	q.Submit(func(context.Context) error { return first })
	if err := q.WaitFor(q.Submit(func(context.Context) error { ran++; return nil })); err != first || ran != 2 {
		t.Errorf("WaitFor a function that was dropped: %v, want %v; %d ran", err, first, ran)
	}
}
