//go:build mpi

package mpi

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Numbers are given once, until the last of them; one is free again where rank 0 has
// closed its reducer in a world that is well, and had nothing under way.
func TestTake(t *testing.T) {
	p := &Process{free: []int{0, 1, 2}}
	for _, want := range []int{0, 1, 2} {
		if number, err := p.Take(); number != want || err != nil {
			t.Errorf("%d, %v, want %d", number, err, want)
		}
	}
	if number, err := p.Take(); err == nil {
		t.Errorf("a fourth of three: %d", number)
	}
	for _, x := range []struct {
		first, well, busy bool
		free              int
	}{{true, true, false, 1}, {false, true, false, 0}, {true, false, false, 0}, {true, true, true, 0}} {
		p := &Process{}
		r, err := p.newReduction(world{})
		if err != nil {
			t.Fatal(err)
		}
		s := &sums{reduction: r, number: 7, first: x.first}
		if x.busy {
			s.into = make([]float32, 1)
		}
		s.Close(x.well)
		if len(p.free) != x.free || x.free > 0 && p.free[0] != 7 {
			t.Errorf("%+v: %v are free", x, p.free)
		}
	}
}

// A group whose ranks are not one in each process is refused with the rule.
func TestReducerOfSome(t *testing.T) {
	two := []engine.Link{nil, &link{to: address{here.process, 1}}}
	if _, err := here.Reducer(0, two, 0); err == nil || !strings.Contains(err.Error(), "ranks 0 and 1 are in one process") {
		t.Error(err)
	}
	if _, err := here.Reducer(0, two[:1], 0); (err == nil) != (here.size == 1) {
		t.Errorf("one rank of %d: %v", here.size, err)
	}
	for _, number := range []int{-1, reducers} {
		if _, err := here.Reducer(number, two[:1], 0); err == nil {
			t.Errorf("reducer %d", number)
		}
	}
}

// Of one process the sum is what it gives, whatever the length, and in turns of two.
func TestSumsOfOne(t *testing.T) {
	if here.size > 1 {
		return // mirrors reduce nothing; internal/outage has all others
	}
	var all [2]engine.Reducer
	for i := range all {
		var err error
		if all[i], err = here.Reducer(i, []engine.Link{nil}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{1, 70000, 3} {
		for i, r := range all {
			want := slices.Repeat([]float32{float32(n + i)}, n)
			x := slices.Clone(want)
			if err := r.AllReduce(x, kernels.Op(i)); err != nil {
				t.Fatal(err)
			}
			over, err := false, error(nil)
			for begun := time.Now(); !over && err == nil && time.Since(begun) < 10*time.Second; {
				over, err = r.Over()
			}
			if !over || err != nil || !slices.Equal(x, want) {
				t.Errorf("%d elements: over %v, %v", n, over, err)
			}
		}
	}
	for _, r := range all {
		r.Close(false)
	}
}
