package fault_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/kernels"
)

func host(int) kernels.Backend { return commtest.Memory{} }

// open makes a world whose communicators have faults.
func open(t testing.TB, size int, faults ...fault.Fault) []comm.Communicator {
	p := launch.Parts{Backend: func(rank int) (kernels.Backend, error) { return host(rank), nil }}
	fault.All(faults...)(&p)
	backends, err := p.Backends(size)
	if err != nil {
		t.Fatal(err)
	}
	comms, err := p.Open(context.Background(), backends, comm.Options{Deadline: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for r := range comms {
		comms[r] = p.Comm(r, names.World, comms[r])
	}
	return comms
}

func all(*fault.Call) bool  { return true }
func none(*fault.Call) bool { return false }

// A communicator whose calls are done as they are is a communicator, whether
// they are selected or not.
func TestCallsPass(t *testing.T) {
	for name, where := range map[string]func(*fault.Call) bool{"selected": all, "not selected": none} {
		t.Run(name, func(t *testing.T) {
			commtest.Run(t, func(t testing.TB, size int) []comm.Communicator {
				return open(t, size, fault.OnCalls(where, (*fault.Call).Do))
			}, host, true)
		})
	}
}

// Calls are numbered by kind and tensor, on each communicator, and say where
// they are.
func TestCallsAreNumbered(t *testing.T) {
	type seen struct {
		Op, Tensor string
		N, Rank    int
		Reduction  kernels.Op
	}
	var got []seen
	comms := open(t, 1, fault.OnCalls(all, func(c *fault.Call) error {
		if c.Group != names.World || c.Backend != host(0) {
			t.Errorf("call on group %s with backend %v", c.Group, c.Backend)
		}
		got = append(got, seen{c.Op, c.Label.Tensor, c.N, c.Rank, c.Reduction})
		return c.Do()
	}))
	for _, tensor := range []string{"a", "b", "a"} {
		ctx := comm.WithLabel(context.Background(), comm.Label{Tensor: tensor})
		if err := comms[0].AllReduce(ctx, vector(t, 1), kernels.Max); err != nil {
			t.Fatal(err)
		}
	}
	if err := comms[0].AllReduceInt(context.Background(), []uint64{1}, kernels.Sum); err != nil {
		t.Fatal(err)
	}
	want := []seen{{names.OpAllReduce, "a", 0, 0, kernels.Max}, {names.OpAllReduce, "b", 0, 0, kernels.Max},
		{names.OpAllReduce, "a", 1, 0, kernels.Max}, {names.OpAllReduceInt, "", 0, 0, kernels.Sum}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func vector(t *testing.T, x ...float32) kernels.Tensor {
	b, err := host(0).Alloc(len(x))
	if err != nil {
		t.Fatal(err)
	}
	host(0).Write(kernels.Flat(b), x)
	return kernels.Flat(b)
}

// What a call is for decides which selector takes it.
func TestSelectors(t *testing.T) {
	call := func(group names.Axis, op, tensor string, n int) *fault.Call {
		return &fault.Call{Group: group, Op: op, Label: comm.Label{Tensor: tensor}, N: n}
	}
	for _, x := range []struct {
		where func(*fault.Call) bool
		call  *fault.Call
		want  bool
	}{
		{fault.Reductions("head", 1), call(names.DP, names.OpAllReduce, "head", 1), true},
		{fault.Reductions("head", 1), call(names.World, names.OpAllReduce, "head", 1), true},
		{fault.Reductions("head", 1), call(names.DP, names.OpAllReduce, "head", 0), false},
		{fault.Reductions("head", -1), call(names.DP, names.OpAllReduce, "head", 5), true},
		{fault.Reductions("head", 1), call(names.TP, names.OpAllReduce, "head", 1), false},
		{fault.Reductions("head", 1), call(names.DP, names.OpBroadcast, "head", 1), false},
		{fault.Reductions("head", 1), call(names.DP, names.OpAllReduce, "final", 1), false},
		{fault.Norms, call(names.World, names.OpAllReduceInt, "norm", 0), true},
		{fault.Norms, call(names.DP, names.OpAllReduceInt, "norm", 0), false},
	} {
		if got := x.where(x.call); got != x.want {
			t.Errorf("%+v selected: %v", x.call, got)
		}
	}
}

// A call that stands for no operation is refused, not dropped.
func TestUnknownCall(t *testing.T) {
	c := fault.Call{Op: names.OpBarrier, Rank: 3}
	if err := c.Do(); err == nil {
		t.Error("a barrier was done as a call")
	}
}

// What is done in place of a sum shows in its result. The far-first tree orders
// ranks by their reversed bits: where elements are far apart, the last bits show
// which were added first.
func TestSums(t *testing.T) {
	x := []float32{1 << 24, 1, -(1 << 24), 1}
	sum := func(faults ...fault.Fault) float32 {
		out := make([]float32, 1)
		comms := open(t, len(x), append(faults, fault.OnCalls(none, fault.Skip))...)
		errs := make(chan error)
		for r, c := range comms {
			go func() {
				v := vector(t, x[r])
				err := c.AllReduce(context.Background(), v, kernels.Sum)
				if r == 0 && err == nil {
					err = host(0).Read(out, v)
				}
				errs <- err
			}()
		}
		for range comms {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		return out[0]
	}
	near, far := (x[0]+x[1])+(x[2]+x[3]), (x[0]+x[2])+(x[1]+x[3])
	if got := sum(); got != near {
		t.Errorf("the tree gives %v, want %v", got, near)
	}
	if got := sum(fault.OnCalls(all, fault.FarFirst)); got != far || far == near {
		t.Errorf("the far-first tree gives %v, want %v", got, far)
	}
	if got := sum(fault.OnCalls(all, fault.Twice)); got != 4*near {
		t.Errorf("summed twice gives %v, want %v", got, 4*near)
	}
	lost := func(c *fault.Call) error {
		c.Backend.Write(c.X, []float32{0})
		return c.Do()
	}
	if got, want := sum(fault.OnCalls(func(c *fault.Call) bool { return c.Rank == 2 }, lost)), (x[0]+x[1])+x[3]; got != want {
		t.Errorf("without rank 2 the sum is %v, want %v", got, want)
	}
}

// constant is an optimizer and a source that does as it is told.
type constant struct{ got *[]optim.Step }

func (constant) Moments() []string { return nil }

func (c constant) Update(_ kernels.Backend, _, _ kernels.Tensor, _ []kernels.Tensor, _ bool, s optim.Step) {
	*c.got = append(*c.got, s)
}

func (constant) Sequences(step, worker, workers int) ([]data.Sequence, []int64) {
	return nil, []int64{int64(step), int64(worker), int64(workers)}
}

// Later faults are outside of earlier ones, and see the rank.
func TestOrder(t *testing.T) {
	var p launch.Parts
	fault.All(
		fault.OnUpdate(func(u *fault.Update) { u.Step.T *= 10; u.Do() }), nil,
		fault.OnUpdate(func(u *fault.Update) { u.Step.T += u.Rank; u.Do() }),
		fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) { s.Step *= 10; return s.Do() }),
		fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) { s.Step += s.Rank; return s.Do() }),
	)(&p)
	var got []optim.Step
	p.Optimizer(2, constant{&got}).Update(nil, kernels.Tensor{}, kernels.Tensor{}, nil, false, optim.Step{T: 5, LR: 1})
	if d := cmp.Diff([]optim.Step{{T: 70, LR: 1}}, got); d != "" {
		t.Error(d)
	}
	if _, ids := p.Source(2, constant{}).Sequences(5, 6, 7); !slices.Equal(ids, []int64{70, 6, 7}) {
		t.Errorf("the source is asked for %v", ids)
	}
}

// A fault that is put into a run joins what the run has, and unshares it.
func TestInto(t *testing.T) {
	var order []string
	note := func(s string) fault.Fault { return func(*launch.Parts) { order = append(order, s) } }
	c := suite.Case{Name: "x", Runs: map[contract.Role]suite.Run{contract.Test: {Key: "shared", Parts: note("old")}}}
	fault.Into(contract.Test, note("new"))(&c)
	r := c.Runs[contract.Test]
	r.Parts(&launch.Parts{})
	if !slices.Equal(order, []string{"old", "new"}) || r.Key != "" {
		t.Errorf("the run has key %q and faults %v", r.Key, order)
	}
	defer func() {
		if recover() == nil {
			t.Error("a fault was put into a run that the case does not have")
		}
	}()
	fault.Into(contract.Control, note("lost"))(&c)
}
