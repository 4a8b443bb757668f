//go:build linux

package procs

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

var (
	soakAgents = flag.Int("soak-agents", 4, "processes of TestSoak, each with a rank")
	soakTimes  = flag.Int("soak-times", 200, "all-reduces of TestSoak")
)

// soaks, as what the test binary is, reduces instead of training.
const soaks = "soaks"

// soak is what its agents are to do.
type soak struct{ Ranks, Times int }

// level is how much a process has of what must not grow.
type level struct{ heap, descriptors, goroutines int }

func levelNow() (l level, err error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	return level{int(m.HeapAlloc + m.StackInuse), len(open), runtime.NumGoroutine()}, err
}

// work reduces vectors of changing lengths with the other ranks, and checks every
// element of every result, and that this process has no more of anything at the end
// than after a quarter.
func (s soak) work(ctx context.Context, j *Job) (*launch.Outcome, error) {
	if err := json.Unmarshal(j.What, &s); err != nil {
		return nil, err
	}
	be := ref.New[float32]()
	ends, err := j.world(ctx, s.Ranks, func(int) kernels.Backend { return be }, comm.Options{Deadline: time.Minute})
	if err != nil {
		return nil, err
	}
	rank := Deal(j.a.Agents, s.Ranks)[j.a.Agent][0]
	c := ends[rank]
	defer c.Close()
	var quarter level
	for n := range s.Times {
		if err := s.reduce(ctx, be, c, n); err != nil {
			return nil, fmt.Errorf("rank %d, all-reduce %d: %w", rank, n, err)
		}
		if n == s.Times/4 {
			if quarter, err = levelNow(); err != nil {
				return nil, err
			}
		}
	}
	last, err := levelNow()
	if err == nil && (last.heap > quarter.heap+1<<20+s.Ranks<<15 || last.descriptors > quarter.descriptors || last.goroutines > quarter.goroutines+2) {
		err = fmt.Errorf("rank %d: %d bytes, %d descriptors, %d goroutines after a quarter, %d, %d, %d at the end", rank,
			quarter.heap, quarter.descriptors, quarter.goroutines, last.heap, last.descriptors, last.goroutines)
	}
	return nil, err
}

// value is what a rank gives for an element: sums of any number of ranks are exact.
func (s soak) value(rank, n, i int) float32 { return float32((rank*31+n*17+i*7)%1009 - 500) }

func (s soak) reduce(ctx context.Context, be kernels.Backend, c comm.Communicator, n int) error {
	elements := []int{1, 1000, 70001, 257, 0, 16384}[n%6]
	b, err := be.Alloc(elements)
	if err != nil {
		return err
	}
	defer be.Free(b)
	x, v := kernels.Flat(b), make([]float32, elements)
	for i := range v {
		v[i] = s.value(c.Rank(), n, i)
	}
	be.Write(x, v)
	if err := c.AllReduce(ctx, x, kernels.Sum); err != nil {
		return err
	}
	if err := be.Read(v, x); err != nil {
		return err
	}
	for i, got := range v {
		want := float32(0)
		for rank := range s.Ranks {
			want += s.value(rank, n, i)
		}
		if got != want {
			return fmt.Errorf("element %d of %d is %v, want %v", i, elements, got, want)
		}
	}
	return nil
}

// Many processes reduce many times: every result is right, and nothing grows, here
// neither.
func TestSoak(t *testing.T) {
	opts := options(*soakAgents, soaks)
	opts.Deadline = 0 // many processes share the processors
	before, err := levelNow()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	team, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	came := time.Since(begun)
	s := soak{*soakAgents, *soakTimes}
	what, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	defer once.Do(func() { team.Close(4) })
	for range 2 { // worlds come and go
		if _, err := team.Run(t.Context(), Task{What: what, World: s.Ranks}); err != nil {
			t.Fatal(err)
		}
	}
	once.Do(func() { team.Close(0) })
	gone(t, team)
	t.Logf("%d processes came within %v; 2 worlds of %d all-reduces in %v", *soakAgents, came, *soakTimes, time.Since(begun)-came)
	var after level
	for range 100 { // connections end a moment later
		if after, err = levelNow(); err != nil {
			t.Fatal(err)
		}
		if after.descriptors <= before.descriptors && after.goroutines <= before.goroutines {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%+v before, %+v after", before, after)
}
