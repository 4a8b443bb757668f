package cpu

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// A panic of a part, on whichever thread, is that of the caller of the kernel, who
// gets it when no thread is at work any more; the backend works on.
func TestPanicOfAThreadIsTheCallers(t *testing.T) {
	b, err := New(Options{Threads: 4})
	if err != nil {
		t.Fatal(err)
	}
	var nowhere []float32
	for name, fault := range map[string]func(){
		"index out of range": func() { nowhere[3]++ },
		"nil pointer":        func() { (*call)(nil).parts++ },
		"planted":            func() { panic("planted") },
	} {
		for part := range 64 {
			done := make([]bool, 64)
			err := guard.Do(func() error {
				b.dispatch(b.newCall(func(_ *call, _ *workspace, i int) {
					if i == part {
						fault()
					}
					done[i] = true
					runtime.Gosched()
				}, noPath, noPath), len(done))
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "(panic_test.go:") {
				t.Fatalf("%s in part %d: %v", name, part, err)
			}
			for i, ok := range done {
				if ok != (i != part) {
					t.Fatalf("%s in part %d: part %d done: %v", name, part, i, ok)
				}
			}
		}
	}
	x, err := b.Alloc(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	flat := kernels.Flat(x)
	b.Fill(flat, 3)
	got := make([]float32, flat.Len())
	if err := errors.Join(b.Sync(), b.Read(got, flat)); err != nil || got[0] != 3 || got[len(got)-1] != 3 {
		t.Errorf("after it: %v, %v", got[0], err)
	}
}

// A thread that waits for its turn is not left waiting for one that panicked, and
// neither is one that waits for a lock.
func TestPanicLeavesNoThreadWaiting(t *testing.T) {
	b, err := New(Options{Threads: 4})
	if err != nil {
		t.Fatal(err)
	}
	if b.isa == nil {
		t.Skip("no threads share a kernel here")
	}
	x, err := b.Alloc(1 << 18)
	if err != nil {
		t.Fatal(err)
	}
	flat := kernels.Flat(x)
	for name, kernel := range map[string]func(){
		"digest":  func() { b.Hash(nil, flat, kernels.Place{}) },
		"squares": func() { b.SumSquares(nil, flat) },
		"norm": func() {
			c := b.newCall(normGradPart, pathRMSNormGrad, noPath)
			c.rows, c.cols, c.perPart = 1<<10, 1<<8, 1 // no tensors: the first turn panics
			c.block.Store(0)
			c.turn.Store(0)
			b.dispatch(c, 4)
		},
	} {
		if err := guard.Do(func() error { kernel(); return nil }); err == nil {
			t.Errorf("%s: no panic", name)
		}
	}
}
