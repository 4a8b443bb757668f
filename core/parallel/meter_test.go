package parallel

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

func TestMeterCounts(t *testing.T) {
	be := ref.New[float32]()
	m := &Meter{Backend: be}
	alloc := func(what string, n int) kernels.Tensor {
		x, err := m.Alloc(what, n)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	check := func(when string, want ...Usage) {
		t.Helper()
		if got := m.Take(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	rest := func(acts, other int64) []Usage {
		return []Usage{{names.MemActivations, acts, acts}, {names.MemOther, other, other}}
	}
	usage := func(acts, other, weights, weightsPeak, grads, gradsPeak, moments, state, statePeak int64) []Usage {
		out := []Usage{{names.MemWeights, weights, weightsPeak}, {names.MemGrads, grads, gradsPeak}, {names.MemMoments, moments, moments}}
		return append(append(out, rest(acts, other)...), Usage{"state", state, statePeak})
	}
	check("at first", usage(0, 0, 0, 0, 0, 0, 0, 0, 0)...)
	w := alloc(names.MemWeights, 10)
	g := alloc(names.MemGrads, 100)
	m.Free(g)
	alloc(names.MemMoments, 20)
	alloc(names.MemOther, 1000)    // not part of the state
	alloc(names.MemEvidence, 5000) // nor of any figure
	if _, err := m.For(names.MemActivations).Alloc(3); err != nil {
		t.Fatal(err)
	}
	check("after a peak", usage(12, 4000, 40, 40, 0, 400, 80, 120, 440)...)
	check("peaks start again", usage(12, 4000, 40, 40, 0, 0, 80, 120, 120)...)
	m.Free(w)
	check("after a release", usage(12, 4000, 0, 40, 0, 0, 80, 80, 120)...)
	if live, _ := be.Live(); live != 4*6023 {
		t.Errorf("the backend has %d bytes in use", live)
	}
	if _, err := m.Alloc(names.MemGrads, -1); err == nil || !strings.Contains(err.Error(), "grads of -1 elements") {
		t.Errorf("an impossible allocation: %v", err)
	}
	check("after an error", usage(12, 4000, 0, 0, 0, 0, 80, 80, 80)...)
}

// What is returned is lent again, counted by what is in use; the backend holds
// as many buffers as were lent at once, of the longest loan.
func TestMeterLends(t *testing.T) {
	be := ref.New[float32]()
	m := &Meter{Backend: be}
	held := func() int64 { live, _ := be.Live(); return live }
	borrow := func(what string, n int) kernels.Tensor {
		t.Helper()
		x, err := m.Borrow(what, n)
		if err != nil || x.Len() != n {
			t.Fatalf("%d elements: %v, %v", n, x, err)
		}
		return x
	}
	for _, n := range []int{7, 10, 9, 8} {
		m.Lend(n)
	}
	for round := range 3 { // a pass over units of 7, 9, 8 and 10 elements, two at a time
		last := borrow(names.MemWeights, 7)
		for _, n := range []int{9, 8, 10} {
			x := borrow(names.MemWeights, n)
			if x.Buf == last.Buf {
				t.Fatal("one buffer is lent twice")
			}
			m.Return(last)
			last = x
		}
		m.Return(last)
		u := m.Take()
		if u[0] != (Usage{names.MemWeights, 0, 4 * 18}) || u[5] != (Usage{"state", 0, 4 * 18}) || held() != 4*2*10 {
			t.Errorf("round %d: weights %v, state %v, %d bytes held; want a peak of two units, and two of the longest held", round, u[0], u[5], held())
		}
	}
	g, x := borrow(names.MemGrads, 0), borrow(names.MemOther, 10)
	if u := m.Take(); u[0].Live != 0 || u[1].Live != 0 || u[4].Live != 40 || g.Buf == x.Buf {
		t.Errorf("usage %v: want what is in use under its own name", u)
	}
	m.Return(x)
	if y := borrow(names.MemOther, 11); held() != 4*(10+11) || y.Buf.Len() != 11 {
		t.Errorf("%d bytes are held after a loan of 11 elements that nobody announced", held())
	}
	m.Return(g)
	if allocs := testing.AllocsPerRun(20, func() { m.Return(borrow(names.MemGrads, 6)) }); allocs != 0 {
		t.Errorf("%v allocations per loan, want none", allocs)
	}
	if _, err := (&Meter{Backend: failing{be}}).Borrow(names.MemGrads, 5); err == nil || !strings.Contains(err.Error(), "grads of 5 elements") {
		t.Errorf("a loan that cannot be allocated: %v", err)
	}
}

// failing is a backend without memory.
type failing struct{ kernels.Backend }

func (failing) Alloc(int) (kernels.Buffer, error) { return nil, errors.New("no memory") }
