package contracts

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// busy counts the runs that go on.
type busy struct{ now, most, beside atomic.Int64 }

// watch makes a run that takes a while and counts itself.
func (b *busy) watch(alone bool) contract.Run {
	return contract.Run{Alone: alone, Do: func(context.Context, contract.Env) (*trace.History, error) {
		n := b.now.Add(1)
		defer b.now.Add(-1)
		b.most.Store(max(b.most.Load(), n))
		time.Sleep(5 * time.Millisecond)
		if alone {
			b.beside.Add(b.now.Load() - 1 + n - 1)
		}
		return nil, nil
	}}
}

func TestNothingRunsBesideRunsThatMustBeAlone(t *testing.T) {
	var b busy
	var q queue
	for i := range 24 {
		q.add("run", b.watch(i%3 == 0))
	}
	o := options()
	if err := o.execute(t.Context(), q.jobs); err != nil {
		t.Fatal(err)
	}
	if n := b.beside.Load(); n != 0 {
		t.Errorf("%d times another run went on beside one that must be alone", n)
	}
	if o.width() > 1 && b.most.Load() < 2 {
		t.Error("the other runs went on one after another: the test shows nothing")
	}
}

func TestSharedRunsAreAloneIfAnyoneAsks(t *testing.T) {
	var q queue
	first, second := contract.Run{Key: "same"}, contract.Run{Key: "same", Alone: true}
	if a, b := q.add("a", first), q.add("b", second); a != b || !a.alone {
		t.Errorf("jobs %v and %v", a, b)
	}
}

func TestDeadlinesOfBrokenRunsAreShort(t *testing.T) {
	for _, c := range []struct{ parts, job, want time.Duration }{
		{0, 0, 0}, {time.Hour, 0, time.Hour}, {0, time.Second, time.Second}, {time.Hour, time.Second, time.Second}, {time.Second, time.Hour, time.Second},
	} {
		var got time.Duration
		o := options()
		o.Parts.Deadline = c.parts
		j := job{deadline: c.job, run: contract.Run{Do: func(_ context.Context, env contract.Env) (*trace.History, error) {
			got = env.Parts.Deadline
			return nil, nil
		}}}
		if _, err := o.one(t.Context(), &j); err != nil || got != c.want {
			t.Errorf("parts %s, job %s: %s, %v", c.parts, c.job, got, err)
		}
	}
}
