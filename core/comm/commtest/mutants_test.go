package commtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/kernels"
)

// reports collects what a check finds.
type reports struct {
	mu    sync.Mutex
	lines []string
}

func (r *reports) Helper() {}

func (r *reports) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// mutant is a communicator with a defect; the methods of the embedded one work.
type mutant struct {
	comm.Communicator
	calls int                       // of the operation with the defect
	held  *float32                  // a message kept back
	last  []float32                 // an earlier result
	f     func(m *mutant) overrides // the defect
}

// overrides replaces operations; nil fields work.
type overrides struct {
	allReduce     func(context.Context, kernels.Tensor, kernels.Op) error
	reduceScatter func(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error
	allGather     func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error
	broadcast     func(context.Context, kernels.Tensor, int) error
	send          func(context.Context, kernels.Tensor, int) error
	barrier       func(context.Context) error
	ints          func(context.Context, []uint64, kernels.Op) error
	gatherBytes   func(context.Context, []byte) ([][]byte, error)
	split         func(ctx context.Context, color, key int) (comm.Communicator, error)
	closeGroup    func() error
}

func (m *mutant) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	if f := m.f(m).allReduce; f != nil {
		return f(ctx, x, op)
	}
	return m.Communicator.AllReduce(ctx, x, op)
}

func (m *mutant) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	if f := m.f(m).reduceScatter; f != nil {
		return f(ctx, dst, src, bounds, op)
	}
	return m.Communicator.ReduceScatter(ctx, dst, src, bounds, op)
}

func (m *mutant) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	if f := m.f(m).allGather; f != nil {
		return f(ctx, dst, src, bounds)
	}
	return m.Communicator.AllGather(ctx, dst, src, bounds)
}

func (m *mutant) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	if f := m.f(m).broadcast; f != nil {
		return f(ctx, x, root)
	}
	return m.Communicator.Broadcast(ctx, x, root)
}

func (m *mutant) Send(ctx context.Context, x kernels.Tensor, to int) error {
	if f := m.f(m).send; f != nil {
		return f(ctx, x, to)
	}
	return m.Communicator.Send(ctx, x, to)
}

func (m *mutant) Barrier(ctx context.Context) error {
	if f := m.f(m).barrier; f != nil {
		return f(ctx)
	}
	return m.Communicator.Barrier(ctx)
}

func (m *mutant) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	if f := m.f(m).ints; f != nil {
		return f(ctx, x, op)
	}
	return m.Communicator.AllReduceInt(ctx, x, op)
}

func (m *mutant) AllGatherBytes(ctx context.Context, b []byte) ([][]byte, error) {
	if f := m.f(m).gatherBytes; f != nil {
		return f(ctx, b)
	}
	return m.Communicator.AllGatherBytes(ctx, b)
}

func (m *mutant) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	if f := m.f(m).split; f != nil {
		return f(ctx, color, key)
	}
	return m.Communicator.Split(ctx, color, key)
}

func (m *mutant) Close() error {
	if f := m.f(m).closeGroup; f != nil {
		return f()
	}
	return m.Communicator.Close()
}

// read and write reach into a tensor.
func read(t kernels.Tensor) []float32 {
	x := make([]float32, t.Len())
	if err := (commtest.Host{}).Read(x, t); err != nil {
		panic(err)
	}
	return x
}

func write(t kernels.Tensor, x ...float32) { commtest.Host{}.Write(t, x) }

// clone is a copy of t in a buffer of its own.
func clone(t kernels.Tensor) kernels.Tensor {
	b, err := commtest.Host{}.Alloc(t.Len())
	if err != nil {
		panic(err)
	}
	write(kernels.Flat(b), read(t)...)
	return kernels.Flat(b)
}

// defects are named mutants and the checks that must catch them.
func defects() map[string]struct {
	checks []string
	f      func(m *mutant) overrides
} {
	type defect = struct {
		checks []string
		f      func(m *mutant) overrides
	}
	all := map[string]defect{}
	add := func(name string, f func(m *mutant) overrides, checks ...string) { all[name] = defect{checks, f} }

	add("one rank keeps its input once", func(m *mutant) overrides {
		return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			if m.calls++; m.calls == 20 && m.Rank() == 1 {
				x = clone(x)
			}
			return m.Communicator.AllReduce(ctx, x, op)
		}}
	}, "results", "stream")
	add("a result of an earlier call", func(m *mutant) overrides {
		return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			err := m.Communicator.AllReduce(ctx, x, op)
			if m.calls++; m.calls > 20 && len(m.last) == x.Len() {
				write(x, m.last...)
			} else {
				m.last = read(x)
			}
			return err
		}}
	}, "results", "stream")
	add("an element that does not take part", func(m *mutant) overrides {
		return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			if m.Rank() == 1 && x.Len() > 0 {
				write(x.Range(0, 1), 0)
			}
			return m.Communicator.AllReduce(ctx, x, op)
		}}
	}, "results", "stream")
	add("sums that start at +0", func(m *mutant) overrides {
		return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			err := m.Communicator.AllReduce(ctx, x, op)
			v := read(x)
			for i := range v {
				v[i] += 0
			}
			write(x, v...)
			return err
		}}
	}, "results")
	add("the last element is dropped", func(m *mutant) overrides {
		return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			return m.Communicator.AllReduce(ctx, x.Range(0, max(x.Len()-1, 0)), op)
		}}
	}, "results", "stream")
	add("chunk r+1 on rank r", func(m *mutant) overrides {
		return overrides{reduceScatter: func(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
			all := clone(src)
			if err := m.Communicator.AllReduce(ctx, all, op); err != nil {
				return err
			}
			bounds, err := comm.CheckBounds(bounds, src.Len(), m.Size())
			lo := bounds[(m.Rank()+1)%m.Size()]
			write(dst, read(all.Range(min(lo, src.Len()-dst.Len()), min(lo, src.Len()-dst.Len())+dst.Len()))...)
			return err
		}}
	}, "results")
	add("bounds are ignored", func(m *mutant) overrides {
		return overrides{allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
			if err := m.Communicator.AllGather(ctx, dst, src, bounds); err != nil || bounds == nil {
				return err
			}
			v := read(dst)
			slices.Reverse(v)
			write(dst, v...)
			return nil
		}}
	}, "results")
	add("one element too many is written", func(m *mutant) overrides {
		return overrides{allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
			err := m.Communicator.AllGather(ctx, dst, src, bounds)
			if end := dst.Off + dst.Len(); end < dst.Buf.Len() {
				write(kernels.Flat(dst.Buf).Range(end, end+1), 0)
			}
			return err
		}}
	}, "results")
	add("the source is scaled", func(m *mutant) overrides {
		return overrides{allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
			err := m.Communicator.AllGather(ctx, dst, src, bounds)
			if src.Len() > 0 {
				write(src.Range(0, 1), 99)
			}
			return err
		}}
	}, "sources")
	add("another root", func(m *mutant) overrides {
		return overrides{broadcast: func(ctx context.Context, x kernels.Tensor, root int) error {
			if root == 2 {
				root = 1
			}
			return m.Communicator.Broadcast(ctx, x, root)
		}}
	}, "results", "sources")
	add("messages overtake each other", func(m *mutant) overrides {
		return overrides{send: func(ctx context.Context, x kernels.Tensor, to int) error {
			if x.Len() != 1 || m.Rank() != 0 || to != 1 {
				return m.Communicator.Send(ctx, x, to)
			}
			if m.calls++; m.calls%2 == 1 {
				v := read(x)[0]
				m.held = &v
				return nil
			}
			first := clone(x)
			write(first, *m.held)
			return errors.Join(m.Communicator.Send(ctx, x, to), m.Communicator.Send(ctx, first, to))
		}}
	}, "results")
	add("a barrier that does not wait", func(m *mutant) overrides {
		return overrides{barrier: func(context.Context) error { return nil }}
	}, "barrier")
	add("integers are added for a maximum", func(m *mutant) overrides {
		return overrides{ints: func(ctx context.Context, x []uint64, _ kernels.Op) error {
			return m.Communicator.AllReduceInt(ctx, x, kernels.Sum)
		}}
	}, "results")
	add("bytes in another order", func(m *mutant) overrides {
		return overrides{gatherBytes: func(ctx context.Context, b []byte) ([][]byte, error) {
			all, err := m.Communicator.AllGatherBytes(ctx, b)
			slices.Reverse(all)
			return all, err
		}}
	}, "results")
	add("keys are ignored", func(m *mutant) overrides {
		return overrides{split: func(ctx context.Context, color, _ int) (comm.Communicator, error) {
			return m.Communicator.Split(ctx, color, 0)
		}}
	}, "results")
	add("a negative color joins a group", func(m *mutant) overrides {
		return overrides{split: func(ctx context.Context, color, key int) (comm.Communicator, error) {
			return m.Communicator.Split(ctx, max(color, 0), key)
		}}
	}, "results")
	add("keys are ignored below the first level", func(m *mutant) overrides {
		return overrides{split: func(ctx context.Context, color, key int) (comm.Communicator, error) {
			g, err := m.Communicator.Split(ctx, color, key)
			if g == nil {
				return nil, err
			}
			return &mutant{Communicator: g, f: func(inner *mutant) overrides {
				return overrides{split: func(ctx context.Context, color, _ int) (comm.Communicator, error) {
					return inner.Communicator.Split(ctx, color, 0)
				}}
			}}, err
		}}
	}, "nested splits")
	add("a duplicate is the group itself", func(m *mutant) overrides {
		return overrides{split: func(context.Context, int, int) (comm.Communicator, error) { return m.Communicator, nil }}
	}, "duplicates overlap")
	add("errors are swallowed", func(m *mutant) overrides {
		return overrides{
			barrier: func(ctx context.Context) error { _ = m.Communicator.Barrier(ctx); return nil },
			allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				_ = m.Communicator.AllReduce(ctx, x, op)
				return nil
			},
		}
	}, "arguments", "mismatch", "closed peer", "cancelled peer", "failure spreads")
	add("errors of another type", func(m *mutant) overrides {
		return overrides{barrier: func(ctx context.Context) error {
			if err := m.Communicator.Barrier(ctx); err != nil {
				return errors.New(err.Error())
			}
			return nil
		}}
	}, "arguments", "mismatch", "closed peer", "cancelled peer")
	add("closing is not told", func(m *mutant) overrides {
		return overrides{closeGroup: func() error { return nil }}
	}, "closed peer")
	add("contexts are ignored", func(m *mutant) overrides {
		return overrides{
			barrier: func(context.Context) error { return m.Communicator.Barrier(context.Background()) },
			allReduce: func(_ context.Context, x kernels.Tensor, op kernels.Op) error {
				return m.Communicator.AllReduce(context.Background(), x, op)
			},
		}
	}, "cancelled peer")
	add("closing twice is an error", func(m *mutant) overrides {
		return overrides{closeGroup: func() error {
			if m.calls++; m.Communicator.Close() != nil || m.calls > 0 {
				return errors.New("closed")
			}
			return nil
		}}
	}, "quiet close")
	return all
}

// suite opens worlds of the algorithm with a defect on every rank.
func suite(algo comm.Algorithm, f func(m *mutant) overrides) commtest.Suite {
	return commtest.Suite{
		Canonical: true,
		Backend:   host,
		Patience:  time.Second,
		Open: func(size int) ([]comm.Communicator, error) {
			comms, err := comm.NewLocal(size, host, comm.LocalOptions{Algorithm: algo, Deadline: 500 * time.Millisecond})
			for i, c := range comms {
				if f != nil {
					comms[i] = &mutant{Communicator: c, f: f}
				}
			}
			return comms, err
		},
	}
}

func find(t *testing.T, name string) commtest.Check {
	t.Helper()
	for _, c := range commtest.Checks() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q", name)
	return commtest.Check{}
}

func TestDefectsAreCaught(t *testing.T) {
	for name, d := range defects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, check := range d.checks {
				var r reports
				find(t, check).Run(&r, suite(comm.Tree, d.f))
				if len(r.lines) == 0 {
					t.Errorf("check %q does not see it", check)
				}
			}
		})
	}
}

func TestLeftFoldIsNotCanonical(t *testing.T) {
	for _, algo := range []comm.Algorithm{comm.Star, comm.Ring} {
		var r reports
		find(t, "results").Run(&r, suite(algo, nil))
		if !strings.Contains(strings.Join(r.lines, "\n"), string("order inputs")) {
			t.Errorf("%s passes for the canonical tree: %q", algo, r.lines)
		}
	}
}

// Every check catches at least one defect, so that none is idle.
func TestEveryCheckCanFail(t *testing.T) {
	sees := map[string]bool{}
	for _, d := range defects() {
		for _, c := range d.checks {
			sees[c] = true
		}
	}
	for _, c := range commtest.Checks() {
		if !sees[c.Name] {
			t.Errorf("no defect for check %q", c.Name)
		}
	}
}

func TestSuiteAcceptsTheTree(t *testing.T) {
	for _, c := range commtest.Checks() {
		var r reports
		c.Run(&r, suite(comm.Tree, func(*mutant) overrides { return overrides{} }))
		if len(r.lines) > 0 {
			t.Errorf("%s: %q", c.Name, r.lines)
		}
	}
}
