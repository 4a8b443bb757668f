package contracts

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// busy counts the runs that go on.
type busy struct{ now, most, beside atomic.Int64 }

// watch makes a run that takes a while and counts itself.
func (b *busy) watch(alone bool) suite.Run {
	return suite.Run{Alone: alone, Do: func(context.Context, suite.Env) (*trace.History, error) {
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

// Runs go on side by side only while the memory that they need together is there.
func TestRunsShareTheMemory(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // two runs at a time, on any machine
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	need, err := dryrun.Fits(cfg, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	for memory, want := range map[int64]int64{need: 1, 2*need - 1: 1, 2 * need: 2, 0: 2} {
		var b busy
		var q queue
		for range 12 {
			r := b.watch(false)
			r.Config = &cfg
			q.add("run", r)
		}
		o := options()
		o.Memory = memory
		if err := o.execute(t.Context(), q.jobs); err != nil {
			t.Fatal(err)
		}
		for _, j := range q.jobs {
			if j.err != nil {
				t.Errorf("memory for %d of %d bytes: %v", memory, need, j.err)
			}
		}
		if n := min(b.most.Load(), 2); n != want {
			t.Errorf("with %d bytes, %d runs of %d bytes each went on at a time, want %d", memory, n, need, want)
		}
	}
}

func TestSharedRunsAreAloneIfAnyoneAsks(t *testing.T) {
	var q queue
	first, second := suite.Run{Key: "same"}, suite.Run{Key: "same", Alone: true}
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
		j := job{deadline: c.job, run: suite.Run{Do: func(_ context.Context, env suite.Env) (*trace.History, error) {
			got = env.Parts.Deadline
			return nil, nil
		}}}
		if _, err := o.one(t.Context(), &j); err != nil || got != c.want {
			t.Errorf("parts %s, job %s: %s, %v", c.parts, c.job, got, err)
		}
	}
}
